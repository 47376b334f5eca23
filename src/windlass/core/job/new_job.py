"""Request for a new job, and its validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID

from windlass.core import size_limits
from windlass.core.clock import MAX_INSTANT, Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.fast_dataclass import value
from windlass.core.job.dependency import OnParent
from windlass.core.job.lease import check_lease
from windlass.core.job.retry_policy import MAX_DELAY, Policy

DEFAULT_QUEUE = "default"
CORRELATION_ID = "correlation-id"  # header of the id that all jobs of one request share
DEFAULT_POLICY = Policy()


@value
class NewJob:
    """A request to enqueue. The caller makes the id, so that a repeat is harmless.

    `digest` is a fingerprint of the request: it distinguishes a repeat from another request with
    the same id. With `debounce`, the job replaces a waiting job of the same unique key. It runs
    when all jobs in `depends_on` have succeeded; `on_parent` is the policy if one did not. Jobs of
    a flow share `flow_id`. Limits per key and fairness use `limit_key`.
    """

    id: UUID
    task: str
    queue: str = DEFAULT_QUEUE
    payload: bytes = b"null"
    priority: int = 0
    delay: float = 0.0
    run_at: Instant | None = None
    hold: bool = False
    expires_in: float | None = None
    expires_at: Instant | None = None
    policy: Policy = DEFAULT_POLICY
    lease: float | None = None
    owner: str = ""
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    digest: bytes | None = None
    unique_key: str | None = None
    debounce: bool = False
    retry_of: UUID | None = None
    resume: bool = False
    depends_on: tuple[UUID, ...] = ()
    on_parent: OnParent = OnParent.CANCEL
    flow_id: UUID | None = None
    limit_key: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it can conflict with other jobs only by its id."""
        return (
            self.request_id is None
            and self.unique_key is None
            and self.retry_of is None
            and not self.depends_on
        )


def check_new_job(new: NewJob) -> None:
    """Raise an error if a request is invalid."""
    check_own_fields(new)
    size_limits.check_text("queue", new.queue, size_limits.MAX_NAME)
    size_limits.check_text("task", new.task, size_limits.MAX_NAME)
    if not (new.queue and new.task):
        empty = "task" if new.queue else "queue"
        raise InvalidArgumentError(f"{empty} is empty; it must have at least one character")
    if abs(new.priority) > size_limits.MAX_PRIORITY:
        raise InvalidArgumentError(f"priority is {new.priority}; it must fit in 32 bits")
    if not 0 <= new.delay <= MAX_DELAY:
        raise InvalidArgumentError(f"delay is {new.delay} s; it must be between 0 and 10 years")
    if new.lease is not None:
        check_lease(new.lease)
    if new.expires_in is not None and not 0 < new.expires_in <= MAX_DELAY:
        raise InvalidArgumentError(
            f"expires_in is {new.expires_in} s; it must be positive and at most 10 years"
        )
    if new.run_at is not None:
        _check_instant("run_at", new.run_at)
    if new.expires_at is not None:
        _check_instant("expires_at", new.expires_at)
    if new.depends_on:
        _check_parents(new)
    _check_texts(new)


def check_own_fields(new: NewJob) -> None:
    """Check only the fields that differ between jobs of one bulk enqueue."""
    types = (type(new.id), type(new.payload), type(new.priority), type(new.hold), type(new.tags))
    if types != _USUAL_TYPES:
        _check_types(new)
    if len(new.payload) > size_limits.MAX_BLOB:
        size_limits.check_size("the payload", new.payload)


def _check_types(new: NewJob) -> None:
    for name, type_, expected in _TYPES:
        given = getattr(new, name)
        if not isinstance(given, type_):
            raise InvalidArgumentError(f"{name} is {given!r:.80}; it must be {expected}")


def _check_parents(new: NewJob) -> None:
    if len(new.depends_on) > size_limits.MAX_PARENTS:
        raise InvalidArgumentError(
            f"depends_on has {len(new.depends_on):,} jobs, "
            f"the limit is {size_limits.MAX_PARENTS:,}; split them into groups"
        )
    if len(set(new.depends_on)) < len(new.depends_on):
        raise InvalidArgumentError("depends_on contains a job twice")
    if new.id in new.depends_on:
        raise InvalidArgumentError(f"job {new.id} depends on itself")


def _check_instant(name: str, instant: Instant) -> None:
    if not 0 <= instant <= MAX_INSTANT:
        raise InvalidArgumentError(f"{name} is {instant}; it must be between 1970 and 9999")


_USUAL_TYPES = (UUID, bytes, int, bool, tuple)  # of nearly all jobs: one comparison instead of five
_TYPES: tuple[tuple[str, type, str], ...] = (
    ("id", UUID, "a UUID"),
    ("payload", bytes, "bytes"),
    ("priority", int, "an integer"),
    ("hold", bool, "True or False"),
    ("tags", tuple, "a tuple of strings"),
)


def _check_texts(new: NewJob) -> None:
    if new.owner:
        size_limits.check_text("owner", new.owner)
    if new.team is not None:
        size_limits.check_text("team", new.team)
    if new.request_id is not None:
        size_limits.check_text("request_id", new.request_id)
    if new.unique_key is not None:
        size_limits.check_text("unique_key", new.unique_key)
    if new.limit_key is not None:
        size_limits.check_text("limit_key", new.limit_key)
    if new.tags:
        _check_tags(new.tags)
    if new.headers:
        _check_headers(new.headers)


def parse_tags(given: Any) -> tuple[str, ...]:
    """Return tags, given as any sequence of strings, as a tuple."""
    if isinstance(given, str):  # a string is a sequence of strings, too
        raise InvalidArgumentError(f"tags is {given!r:.80}; write tags=[{given!r:.80}]")
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise InvalidArgumentError(
            f'tags is {given!r:.80}; write a list of strings: tags=["a", "b"]'
        )
    invalid = [tag for tag in given if not isinstance(tag, str)]
    if invalid:
        raise InvalidArgumentError(f"tags has {invalid[0]!r:.80}; each tag must be a string")
    return tuple(given)


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > size_limits.MAX_TAGS:
        raise InvalidArgumentError(f"{len(tags)} tags given, the limit is {size_limits.MAX_TAGS}")
    for tag in tags:
        if not 0 < len(tag) <= size_limits.MAX_KEY:
            raise InvalidArgumentError(
                f"tag {tag[:40]!r} must have 1 to {size_limits.MAX_KEY} characters"
            )
        size_limits.check_text("a tag in tags", tag)


def _check_headers(headers: Mapping[str, str]) -> None:
    size = sum(len(key) + len(text) for key, text in headers.items())
    if size > size_limits.MAX_HEADERS:
        raise InvalidArgumentError(
            f"headers hold {size:,} characters, the limit is {size_limits.MAX_HEADERS:,}"
        )
    for key, text in headers.items():
        size_limits.check_text(f"the value of {key!r} in headers", text, size_limits.MAX_HEADERS)
        size_limits.check_text("a key in headers", key, size_limits.MAX_HEADERS)
