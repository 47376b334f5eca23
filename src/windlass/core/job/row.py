"""Rows of jobs: the request to enqueue, and the stored row.

`NewJob` is the request. `JobRow` is the stored row. Its base class `LifecycleRow` has the fields
that decisions read and change. All instants come from the store's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID

from windlass.core import sizes
from windlass.core.clock import MAX_INSTANT, Instant, after
from windlass.core.decisions.retry import MAX_DELAY, Policy
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Lease, check_lease
from windlass.core.job.state import FINAL, State, Trigger
from windlass.core.value import positional_value, value

DEFAULT_QUEUE = "default"
CORRELATION_ID = "correlation-id"
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


@value
class LifecycleRow:
    """The fields of a row that decisions read and change, with the current attempt.

    `base_*` is the progress at the start of the attempt. `queued_seq` and `started_seq` are its
    event numbers; 0 after they moved to the log with a past attempt. `last_record` is the highest
    record number stored for the current fence. `waiting_for` counts the jobs that must end first.
    `awaited`: other jobs wait for this one. `signals` counts the received signals. `gates` must
    admit the job before each attempt; it waits at `gate`.
    """

    id: UUID
    queue: str
    task: str
    created_at: Instant
    expires_at: Instant | None = None
    state: State = State.CREATED
    trigger: Trigger = Trigger.ENQUEUE
    held: bool = False
    waiting_for: int = 0
    position: int | None = None
    due_at: Instant | None = None
    attempt: int = 0
    fence: int = 0
    token: UUID | None = None
    worker: str | None = None
    lease_until: Instant | None = None
    queued_at: Instant | None = None
    started_at: Instant | None = None
    first_started_at: Instant | None = None
    ended_at: Instant | None = None
    updated_at: Instant = 0
    seq: int = 1
    queued_seq: int = 0
    started_seq: int = 0
    last_record: int = 0
    percent: int = 0
    stage: str | None = None
    phase: str | None = None
    base_percent: int = 0
    base_stage: str | None = None
    base_phase: str | None = None
    retry_count: int = 0
    crash_count: int = 0
    cancel_at: Instant | None = None
    cancel_by: str | None = None
    cancel_reason: str | None = None
    error: Failure | None = None
    result: bytes | None = None
    last_step: str | None = None
    on_parent: OnParent = OnParent.CANCEL
    awaited: bool = field(default=False, compare=False)  # only a hint for the store
    signals: int = 0
    gates: tuple[str, ...] = ()
    gate: str | None = None

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL

    @property
    def completed_at(self) -> Instant | None:
        return self.ended_at if self.state is State.SUCCEEDED else None

    @property
    def failed_at(self) -> Instant | None:
        return self.ended_at if self.state is State.FAILED else None

    @property
    def canceled_at(self) -> Instant | None:
        return self.ended_at if self.state is State.CANCELED else None

    @property
    def cancel_requested(self) -> bool:
        """Whether the cancel of a running job was requested; it will end as canceled."""
        return self.cancel_at is not None

    @property
    def isolated(self) -> bool:
        """Whether it must run in its own process, because a worker died while it ran."""
        return self.crash_count > 0


@value
class JobRow(LifecycleRow):
    """The stored row of a job. `serial` is its number in the order of arrival."""

    serial: int = 0
    payload: bytes = b"null"
    priority: int = 0
    policy: Policy = DEFAULT_POLICY
    lease_seconds: float | None = None
    owner: str = ""
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str | None = None
    digest: bytes | None = None
    unique_key: str | None = None
    retry_of: UUID | None = None
    retried_as: UUID | None = None
    root_id: UUID | None = None
    log_floor: int = 0
    flow_id: UUID | None = None
    limit_key: str | None = None

    @property
    def lease(self) -> Lease:
        """Return the lease of its attempt; only a claimed job has one."""
        assert self.token is not None, "only a claimed job has a lease"
        return Lease(self.id, self.fence, self.token)

    @property
    def correlation_id(self) -> str:
        """Return the id shared by all jobs of one request; by default the id of the first job."""
        return self.headers.get(CORRELATION_ID) or str(self.id)

    @property
    def lineage(self) -> UUID:
        """Return the first job of its retries, whose workspace they share."""
        return self.root_id or self.id

    @property
    def can_resume(self) -> bool:
        """Whether it ended without success after at least one completed step."""
        return self.state in {State.FAILED, State.CANCELED} and self.last_step is not None


@positional_value
class InitialState:
    """State and instants of a new job."""

    state: State
    seq: int
    queued_at: Instant | None
    due_at: Instant | None
    expires_at: Instant | None


def initial_state(new: NewJob, now: Instant, waiting_for: int = 0) -> InitialState:
    """Return the state of a new job, before gates are considered."""
    due = new.run_at if new.run_at is not None else after(now, new.delay) if new.delay else now
    expires = new.expires_at
    if expires is None and new.expires_in is not None:
        expires = after(now, new.expires_in)
    if new.hold or waiting_for or due > now:
        return InitialState(State.CREATED, 1, None, due if due > now else None, expires)
    return InitialState(State.QUEUED, 2, now, None, expires)


def new_row(
    new: NewJob,
    now: Instant,
    serial: int,
    root_id: UUID | None = None,
    waiting_for: int = 0,
    *,
    gates: tuple[str, ...] = (),
) -> JobRow:
    """Return the row of a new job."""
    start = initial_state(new, now, waiting_for)
    queued = start.state is State.QUEUED
    gate = gates[0] if queued and gates else None
    if gate is not None:
        start, queued = InitialState(State.CREATED, 1, None, None, start.expires_at), False
    return JobRow(
        id=new.id,
        serial=serial,
        queue=new.queue,
        task=new.task,
        payload=new.payload,
        priority=new.priority,
        policy=new.policy,
        lease_seconds=new.lease,
        owner=new.owner,
        team=new.team,
        tags=new.tags,
        headers=new.headers,
        request_id=new.request_id,
        digest=new.digest,
        unique_key=new.unique_key,
        retry_of=new.retry_of,
        root_id=root_id,
        state=start.state,
        held=new.hold,
        waiting_for=waiting_for,
        on_parent=new.on_parent,
        flow_id=new.flow_id,
        limit_key=new.limit_key,
        gates=gates,
        gate=gate,
        position=serial if queued or gate is not None else None,
        due_at=start.due_at,
        expires_at=start.expires_at,
        created_at=now,
        queued_at=start.queued_at,
        updated_at=now,
        seq=start.seq,
        queued_seq=start.seq if queued else 0,
    )


def check_new_job(new: NewJob) -> None:
    """Raise an error if a request is invalid."""
    check_own_fields(new)
    sizes.check_text("queue", new.queue, sizes.MAX_NAME)
    sizes.check_text("task", new.task, sizes.MAX_NAME)
    if not (new.queue and new.task):
        empty = "task" if new.queue else "queue"
        raise InvalidArgumentError(f"{empty} is empty; it must have at least one character")
    if abs(new.priority) > sizes.MAX_PRIORITY:
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
    _check_types(new)
    sizes.check_size("the payload", new.payload)


def _check_types(new: NewJob) -> None:
    kinds = (type(new.id), type(new.payload), type(new.priority), type(new.hold), type(new.tags))
    if kinds == _USUAL:
        return
    for name, kind, wanted in _TYPES:
        given = getattr(new, name)
        if not isinstance(given, kind):
            raise InvalidArgumentError(f"{name} is {given!r:.80}; it must be {wanted}")


def _check_parents(new: NewJob) -> None:
    if len(new.depends_on) > sizes.MAX_PARENTS:
        raise InvalidArgumentError(
            f"depends_on has {len(new.depends_on):,} jobs, the limit is {sizes.MAX_PARENTS:,}; "
            "split them into groups"
        )
    if len(set(new.depends_on)) < len(new.depends_on):
        raise InvalidArgumentError("depends_on contains a job twice")
    if new.id in new.depends_on:
        raise InvalidArgumentError(f"job {new.id} depends on itself")


def _check_instant(name: str, instant: Instant) -> None:
    if not 0 <= instant <= MAX_INSTANT:
        raise InvalidArgumentError(f"{name} is {instant}; it must be between 1970 and 9999")


_USUAL = (UUID, bytes, int, bool, tuple)  # of nearly all jobs: one comparison instead of five
_TYPES: tuple[tuple[str, type, str], ...] = (
    ("id", UUID, "a UUID"),
    ("payload", bytes, "bytes"),
    ("priority", int, "an integer"),
    ("hold", bool, "True or False"),
    ("tags", tuple, "a tuple of strings"),
)


def _check_texts(new: NewJob) -> None:
    if new.owner:
        sizes.check_text("owner", new.owner)
    if new.team is not None:
        sizes.check_text("team", new.team)
    if new.request_id is not None:
        sizes.check_text("request_id", new.request_id)
    if new.unique_key is not None:
        sizes.check_text("unique_key", new.unique_key)
    if new.limit_key is not None:
        sizes.check_text("limit_key", new.limit_key)
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
    wrong = [one for one in given if not isinstance(one, str)]
    if wrong:
        raise InvalidArgumentError(f"tags has {wrong[0]!r:.80}; each tag must be a string")
    return tuple(given)


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > sizes.MAX_TAGS:
        raise InvalidArgumentError(f"{len(tags)} tags given, the limit is {sizes.MAX_TAGS}")
    for tag in tags:
        if not 0 < len(tag) <= sizes.MAX_KEY:
            raise InvalidArgumentError(
                f"tag {tag[:40]!r} must have 1 to {sizes.MAX_KEY} characters"
            )
        sizes.check_text("a tag in tags", tag)


def _check_headers(headers: Mapping[str, str]) -> None:
    size = sum(len(key) + len(text) for key, text in headers.items())
    if size > sizes.MAX_HEADERS:
        raise InvalidArgumentError(
            f"headers hold {size:,} characters, the limit is {sizes.MAX_HEADERS:,}"
        )
    for key, text in headers.items():
        sizes.check_text(f"the value of {key!r} in headers", text, sizes.MAX_HEADERS)
        sizes.check_text("a key in headers", key, sizes.MAX_HEADERS)
