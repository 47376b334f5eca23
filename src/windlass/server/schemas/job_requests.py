"""Request bodies and query parameters about jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import Field

from windlass.core.clock import Instant, from_datetime
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.dependency import OnParent
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import State
from windlass.core.query.job_query import MAX_PAGE, JobQuery
from windlass.options import EnqueueOptions
from windlass.server.auth.caller import Caller
from windlass.server.auth.scoped_enqueue import scoped_value
from windlass.server.context import ServedApp
from windlass.server.problem_details import invalid_field, invalid_fields
from windlass.server.schemas.base import Duration, RequestModel, parse_duration

T = TypeVar("T")
MAX_IDS = 200  # jobs that one action names: they fit into one audit entry


class JobOptions(RequestModel):
    """Task, arguments and options of a job."""

    task: str
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    queue: str | None = None
    priority: int | None = None
    delay: Duration = 0.0
    hold: bool = False
    expires_in: Duration | None = None
    unique_key: str | None = None
    debounce: bool = False
    limit_key: str | None = None
    owner: str | None = None
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = Field(default_factory=dict)

    def options(self, caller: Caller) -> dict[str, Any]:
        """Return its fields that are options of an enqueue, as far as the caller may set them."""
        names = type(self).model_fields.keys() & EnqueueOptions.__slots__
        values = {name: getattr(self, name) for name in names}
        return values | {
            "delay": parse_duration("delay", self.delay),
            "expires_in": None
            if self.expires_in is None
            else parse_duration("expiresIn", self.expires_in),
            "owner": _scoped("owner", self.owner, caller.owner) or "",
            "team": _scoped("team", self.team, caller.team),
        }

    def prepare(self, app: ServedApp, options: EnqueueOptions) -> NewJob:
        """Return the job; raise with the fields of invalid arguments."""
        spec = app.tasks.get(self.task)
        if spec is None:
            names = ", ".join(sorted(task.name for task in app.tasks)) or "none"
            raise invalid_field(
                "task", f"unknown task {self.task!r:.80}; this app has: {names:.500}"
            )
        try:
            return app.prepare(spec, (), self.arguments, options)
        except InvalidArgumentError as error:
            problems = [(f"arguments.{name}", message) for name, message in error.problems]
            raise invalid_fields(problems or [("arguments", str(error))]) from None


class EnqueueRequest(JobOptions):
    """A job to enqueue. With `requestId` (or the header Idempotency-Key), at most once."""

    id: UUID | None = None
    run_at: datetime | None = None
    request_id: str | None = None
    depends_on: tuple[UUID, ...] = ()
    on_parent: OnParent = OnParent.CANCEL

    def new_job(self, app: ServedApp, caller: Caller, key: str | None) -> NewJob:
        if key is not None and self.request_id not in {None, key}:
            raise invalid_field(
                "requestId", "differs from the header Idempotency-Key; send only one of them"
            )
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise invalid_field("runAt", "needs a time zone: 2026-01-31T12:00:00Z")
        options = EnqueueOptions(**self.options(caller))
        return self.prepare(app, options if key is None else replace(options, request_id=key))


class EnqueueBatchRequest(RequestModel):
    """Jobs to enqueue, each on its own: an invalid one does not affect the others."""

    jobs: list[Any]


class ReasonRequest(RequestModel):
    """Why a job is canceled; stored with it."""

    reason: str | None = None


Repeated = Annotated[tuple[T, ...], Field(max_length=100)]  # repeated values are allowed


class JobFilters(RequestModel):
    """Filters of jobs, which all must match.

    One of repeated `state`, `queue` or `task` values must match, and all `tag` values.
    """

    state: Annotated[Repeated[State], Field(description="One of these states.")] = ()
    queue: Annotated[Repeated[str], Field(description="One of these queues.")] = ()
    task: Annotated[Repeated[str], Field(description="One of these tasks.")] = ()
    tag: Annotated[Repeated[str], Field(description="All of these tags.")] = ()
    owner: Annotated[str | None, Field(description="Owner of the job.")] = None
    team: Annotated[str | None, Field(description="Team of the job.")] = None
    error: Annotated[
        str | None, Field(description="Error code; for other exceptions, the class name.")
    ] = None
    text: Annotated[
        str | None,
        Field(
            description="Part of the task, a tag, or the error's code, type or message; ignores "
            "case. Values of an encrypting codec are not searched."
        ),
    ] = None
    worker: Annotated[str | None, Field(description="Worker of the current or last attempt.")] = (
        None
    )
    request_id: Annotated[str | None, Field(description="Request id (idempotency key).")] = None
    unique_key: Annotated[str | None, Field(description="Unique key.")] = None
    retry_of: Annotated[UUID | None, Field(description="Jobs that re-run this job.")] = None
    flow_id: Annotated[UUID | None, Field(description="Jobs of this flow.")] = None
    created_from: Annotated[
        datetime | None, Field(description="Created at this time or later.")
    ] = None
    created_to: Annotated[datetime | None, Field(description="Created before this time.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="Maximum number of jobs.")] = 100

    def query(self, caller: Caller, cursor: str | None = None) -> JobQuery:
        return JobQuery(
            states=frozenset(self.state),
            queues=frozenset(self.queue),
            tasks=frozenset(self.task),
            tags=frozenset(self.tag),
            owner=_scoped("owner", self.owner, caller.owner),
            team=_scoped("team", self.team, caller.team),
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


class ListJobsRequest(JobFilters):
    """Filters and position of a page of jobs."""

    cursor: Annotated[str | None, Field(description="`cursor` of the previous page.")] = None


class BulkAction(StrEnum):
    """An action on many jobs."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    RETRY = "retry"
    RESUME = "resume"
    DELETE = "delete"


class BulkActionFilters(JobFilters):
    """Filters of jobs. With `id`, only these jobs, all at once: `limit` has no effect."""

    id: Annotated[tuple[UUID, ...], Field(min_length=1, max_length=MAX_IDS)] | None = None

    @property
    def empty(self) -> bool:
        """Whether no filter is set; an empty list counts as not set."""
        return not self.model_dump(exclude={"limit"}, exclude_defaults=True)


class BulkActionRequest(RequestModel):
    """A bulk action; `reason` is stored with canceled jobs."""

    action: BulkAction
    filter: BulkActionFilters
    reason: str | None = None
    cursor: str | None = None


def _instant(field: str, value: datetime | None) -> Instant | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise invalid_field(field, "needs a time zone: 2026-01-31T12:00:00Z")
    return from_datetime(value)


def _scoped(field: str, given: str | None, own: str | None) -> str | None:
    try:
        return scoped_value(field, given, own)
    except InvalidArgumentError as error:
        raise invalid_field(field, str(error)) from None
