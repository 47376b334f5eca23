"""What the server is asked: the bodies and parameters of requests, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from windlass.client import EnqueueOptions
from windlass.core.clock import Instant, from_datetime
from windlass.core.duration import seconds
from windlass.core.errors import InvalidArgumentError
from windlass.core.event import EventType, parse_wire_id
from windlass.core.job.dependency import OnParent
from windlass.core.job.row import NewJob
from windlass.core.job.state import State
from windlass.core.query.job_query import MAX_PAGE, Query
from windlass.server.auth.api_keys import Role
from windlass.server.auth.authenticator import Caller
from windlass.server.auth.ownership import belonging
from windlass.server.context import Home
from windlass.server.problems import all_wrong, wrong
from windlass.server.streaming.hub import Wanted

_MILLISECONDS = 1000
T = TypeVar("T")
Length = float | str  # seconds, or words like "5m"
MOST_IDS = 200  # jobs that one action names: as many as a note of the audit should


class Asked(BaseModel):
    """A field that is not known is a mistake, and told as one."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class JobOptions(Asked):
    """What a job may be asked to be, beside its task and arguments."""

    task: str
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    delay: Length = 0.0
    hold: bool = False
    expires_in: Length | None = None
    unique_key: str | None = None
    debounce: bool = False
    limit_key: str | None = None
    owner: str | None = None
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = Field(default_factory=dict)

    def options(self, caller: Caller) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "priority": self.priority,
            "delay": length("delay", self.delay),
            "hold": self.hold,
            "expires_in": None if self.expires_in is None else length("expiresIn", self.expires_in),
            "unique_key": self.unique_key,
            "debounce": self.debounce,
            "limit_key": self.limit_key,
            "owner": _confined("owner", self.owner, caller.owner) or "",
            "team": _confined("team", self.team, caller.team),
            "tags": self.tags,
            "headers": self.headers,
        }

    def prepared(self, app: Home, options: EnqueueOptions) -> NewJob:
        """The job; which argument is wrong, and why, if one is."""
        spec = app.tasks.get(self.task)
        if spec is None:
            known = ", ".join(sorted(one.name for one in app.tasks)) or "none"
            raise wrong("task", f"no task {self.task!r:.80} here; known are: {known:.500}")
        try:
            return app.prepare(spec, (), self.arguments, options)
        except InvalidArgumentError as error:
            named = [(f"arguments.{where}", what) for where, what in error.problems]
            raise all_wrong(named or [("arguments", str(error))]) from None


class NewJobAsked(JobOptions):
    """A job to be enqueued. With `requestId` (or the header Idempotency-Key), at most once."""

    id: UUID | None = None
    run_at: datetime | None = None
    request_id: str | None = None
    depends_on: tuple[UUID, ...] = ()
    on_parent: OnParent = OnParent.CANCEL

    def new_job(self, app: Home, caller: Caller, key: str | None) -> NewJob:
        if key is not None and self.request_id not in {None, key}:
            raise wrong("requestId", "it differs from the header Idempotency-Key; send one of them")
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise wrong("runAt", "it has no time zone; write 2026-01-31T12:00:00Z")
        options = EnqueueOptions(
            **self.options(caller),
            id=self.id,
            run_at=self.run_at,
            request_id=self.request_id if key is None else key,
            depends_on=self.depends_on,
            on_parent=self.on_parent,
        )
        return self.prepared(app, options)


class BatchAsked(Asked):
    """Jobs to be enqueued, each as if alone: one that is wrong does not concern the others."""

    jobs: list[Any]


class ScheduleAsked(JobOptions):
    """Either `cron` (with `tz`) or `every`."""

    name: str
    cron: str | None = None
    every: Length | None = None
    tz: str | None = None
    missed: Literal["skip", "last", "all"] = "last"

    def new_job(self, app: Home, caller: Caller) -> NewJob:
        return self.prepared(app, EnqueueOptions(**self.options(caller)))


class Why(Asked):
    reason: str | None = None


class KeyAsked(Asked):
    """Roles say what it may do; with an owner or a team, it is for their jobs only."""

    name: str
    roles: tuple[Role, ...]
    owner: str | None = None
    team: str | None = None
    expires_in: Length | None = None


class SignInAsked(Asked):
    """An API key; not needed where the request is made with one."""

    key: Annotated[str, Field(max_length=200)]


Several = Annotated[tuple[T, ...], Field(max_length=100)]  # to name one twice is no mistake


class Filters(Asked):
    """Every one narrows; `state`, `queue`, `task` may be repeated, of `tag` all must be there."""

    state: Several[State] = ()
    queue: Several[str] = ()
    task: Several[str] = ()
    tag: Several[str] = ()
    owner: str | None = None
    team: str | None = None
    error: Annotated[str | None, Field(description="The code of its error, whole.")] = None
    text: Annotated[
        str | None,
        Field(
            description="Part of its task, a tag, or its error's code, type or message, in capitals"
            " or not. What an encrypting codec sealed is not searched."
        ),
    ] = None
    worker: str | None = None
    request_id: str | None = None
    unique_key: str | None = None
    retry_of: UUID | None = None
    flow_id: UUID | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100

    def query(self, caller: Caller, cursor: str | None = None) -> Query:
        return Query(
            states=frozenset(self.state),
            queues=frozenset(self.queue),
            tasks=frozenset(self.task),
            tags=frozenset(self.tag),
            owner=_confined("owner", self.owner, caller.owner),
            team=_confined("team", self.team, caller.team),
            error=self.error,
            text=self.text,
            worker=self.worker,
            request_id=self.request_id,
            unique_key=self.unique_key,
            retry_of=self.retry_of,
            flow_id=self.flow_id,
            created_from=_instant("createdFrom", self.created_from),
            created_to=_instant("createdTo", self.created_to),
            limit=self.limit,
            cursor=cursor,
        )


class ListAsked(Filters):
    cursor: str | None = None


class Verb(StrEnum):
    """What may be done to many jobs at once."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    RETRY = "retry"
    RESUME = "resume"
    DELETE = "delete"


class ActionFilters(Filters):
    """The same; with `id`, of those jobs, and all of them at once: `limit` changes nothing."""

    id: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=MOST_IDS)] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is said of what is meant: an empty list says nothing either."""
        return not self.model_dump(exclude={"limit"}, exclude_defaults=True)


class ActionAsked(Asked):
    """`reason` is kept with jobs that are canceled."""

    action: Verb
    filter: ActionFilters
    reason: str | None = None
    cursor: str | None = None


class Follow(Asked):
    """Where to go on from, and what to see. The last event comes whatever `types` says."""

    last_event_id: str | None = None
    from_sequence: Annotated[int, Field(ge=1, lt=10**18)] | None = None
    from_timestamp: str | None = None
    types: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    ticket: str | None = None

    def wanted(self, header: str | None) -> Wanted:
        """A browser that comes back sends the header, with the URL that it had at first."""
        cursor = header or self.last_event_id
        if cursor is not None:
            after = parse_wire_id(cursor)
        else:
            after = 0 if self.from_sequence is None else self.from_sequence - 1
        return Wanted(after=after, since=_since(self.from_timestamp), types=types_of(self.types))


def types_of(text: str | None) -> frozenset[EventType]:
    if not text:
        return frozenset()
    try:
        return frozenset(EventType(one.strip()) for one in text.split(","))
    except ValueError as error:
        raise wrong("types", f"{error}; known are {', '.join(EventType)}") from None


def _since(text: str | None) -> Instant | None:
    """Milliseconds since 1970, as in event ids, or a time with its zone."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16:  # noqa: PLR2004 - the year 9999
        return int(text) * _MILLISECONDS
    try:
        return from_datetime(datetime.fromisoformat(text))
    except (ValueError, InvalidArgumentError):
        raise wrong(
            "fromTimestamp", f"{text!r:.80} is neither milliseconds nor a time with its zone"
        ) from None


def _instant(field: str, value: datetime | None) -> Instant | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise wrong(field, "it has no time zone; write 2026-01-31T12:00:00Z")
    return from_datetime(value)


def length(field: str, value: Length) -> float:
    try:
        return seconds(value, field)
    except InvalidArgumentError as error:
        raise wrong(field, str(error)) from None


def _confined(field: str, given: str | None, own: str | None) -> str | None:
    try:
        return belonging(field, given, own)
    except InvalidArgumentError as error:
        raise wrong(field, str(error)) from None
