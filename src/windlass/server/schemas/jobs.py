"""Jobs as the server tells of them: whole, in lists, their attempts and events."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Self, cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from windlass.core.clock import Instant, to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import CodecError
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure, details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.diagnosis import Why
from windlass.core.query.job_query import Count
from windlass.insights.graph import Graph
from windlass.server.problems import Problem


class Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


def time(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)


def iso(instant: Instant) -> str:
    return to_datetime(instant).isoformat().replace("+00:00", "Z")


def opened(codec: Codec, data: bytes | None, purpose: Purpose) -> tuple[Any, bool]:
    """What the bytes say, and whether they are sealed: written with a key that is not here."""
    if data is None:
        return None, False
    try:
        return codec.decode(data, purpose), False
    except (CodecError, UnicodeDecodeError):
        return None, True


def taken(kind: type[BaseModel], source: Any) -> dict[str, Any]:
    """The fields of a model that a value has by the same name; instants become times."""
    plain, instants = _shared(kind, cast("Hashable", type(source)))
    found = {name: getattr(source, name) for name in plain}
    for name in instants:
        value = getattr(source, name)
        found[name] = time(value) if isinstance(value, int) else value
    return found


@cache
def _shared(kind: type[BaseModel], source: type[Any]) -> tuple[list[str], list[str]]:
    """The names that both have: those of instants apart."""
    names = [name for name in kind.model_fields if hasattr(source, name)]
    instants = [name for name in names if name.endswith("_at")]
    return [name for name in names if name not in instants], instants


class ErrorView(Wire):
    code: str
    type: str | None = None
    message: str | None = None
    error_type: str
    step: str | None
    attempt: int
    at: datetime | None
    traceback: str | None = None

    @staticmethod
    def of(failure: Failure | None, codec: Codec) -> ErrorView | None:
        if failure is None:
            return None
        said, _ = opened(codec, failure.body, Purpose.ERROR)
        words = said if isinstance(said, dict) else {}
        return ErrorView(
            code=failure.code,
            type=words.get("type"),
            message=words.get("message") or failure.code,
            error_type=failure.kind.value,
            step=failure.step,
            attempt=failure.attempt,
            at=time(failure.at),
            traceback=words.get("traceback"),
        )


class FailureView(Wire):
    """For people: what failed, where, of which sort, and what to try."""

    what: str
    stage: str | None
    sort: str
    advice: str


class JobSummary(Wire):
    """A job as lists show it: nothing that would have to be decoded."""

    id: UUID
    task: str
    queue: str
    state: State
    percent: int
    stage: str | None
    phase: str | None
    attempt: int
    retry_count: int
    crash_count: int
    priority: int
    held: bool
    waiting_for: int
    limit_key: str | None
    gate: str | None
    worker: str | None
    owner: str
    team: str | None
    tags: tuple[str, ...]
    error_code: str | None
    retry_of: UUID | None
    retried_as: UUID | None
    flow_id: UUID | None
    cancel_requested: bool
    created_at: datetime
    queued_at: datetime | None
    first_started_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    updated_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    seq: int

    @classmethod
    def of(cls, row: JobRow) -> Self:
        return cls(**cls.facts(row))

    @classmethod
    def facts(cls, row: JobRow) -> dict[str, Any]:
        return taken(cls, row) | {"error_code": row.error.code if row.error else None}


class JobNode(JobSummary):
    """A job and those that it waits or waited for."""

    depends_on: Sequence[UUID]

    @staticmethod
    def seen(row: JobRow, parents: Sequence[UUID]) -> JobNode:
        return JobNode(**JobNode.facts(row), depends_on=parents)


class GraphView(Wire):
    """The nearest jobs first, and which of these each depends on; if `capped`, there are more."""

    jobs: Sequence[JobNode]
    capped: bool

    @staticmethod
    def of(graph: Graph) -> GraphView:
        jobs = [JobNode.seen(row, graph.parents[row.id]) for row in graph.rows]
        return GraphView(jobs=jobs, capped=graph.capped)


class JobView(JobSummary):
    """A job with all that it carries. `sealed`: some of it was written with a key not held here."""

    arguments: Any
    result: Any
    last_error: ErrorView | None
    failure_details: FailureView | None
    headers: Mapping[str, str]
    correlation_id: str
    request_id: str | None
    unique_key: str | None
    on_parent: OnParent
    completed_at: datetime | None
    failed_at: datetime | None
    canceled_at: datetime | None
    cancel_by: str | None
    cancel_reason: str | None
    can_resume: bool
    last_completed_step: str | None
    sealed: bool

    @classmethod
    def seen(cls, row: JobRow, codec: Codec, **more: Any) -> Self:
        arguments, closed = opened(codec, row.payload, Purpose.PAYLOAD)
        result, shut = opened(codec, row.result, Purpose.RESULT)
        failure = None
        if row.state is State.FAILED and row.error is not None:
            failure = FailureView(
                **taken(FailureView, details(row.error, task=row.task, stage=row.stage))
            )
        facts = cls.facts(row) | {
            "arguments": arguments,
            "result": result,
            "last_error": ErrorView.of(row.error, codec),
            "failure_details": failure,
            "last_completed_step": row.last_step,
            "sealed": closed or shut,
        }
        return cls(**facts, **more)


class EnqueuedView(JobView):
    """The job that stands for the request; a duplicate was there before."""

    duplicate: bool


class JobPage(Wire):
    """`cursor` leads to the next page; null is the end. A page before it may be short or empty."""

    jobs: Sequence[JobSummary]
    cursor: str | None


class CountView(Wire):
    """If it is `capped`, there are at least so many."""

    count: int
    capped: bool

    @staticmethod
    def of(count: Count) -> CountView:
        return CountView(count=count.number, capped=count.capped)


class BatchAnswer(Wire):
    """`status`: created, duplicate, conflict or refused; the last two have a problem, no job."""

    status: str
    job: JobSummary | None = None
    problem: Problem | None = None


class BatchAnswers(Wire):
    """One for each job of the request, in its order."""

    answers: Sequence[BatchAnswer]


class AttemptView(Wire):
    number: int
    worker: str | None
    queued_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error: ErrorView | None
    delay: float | None
    percent: int
    stage: str | None

    @staticmethod
    def seen(one: Attempt, codec: Codec) -> AttemptView:
        facts = taken(AttemptView, one)
        return AttemptView(**facts | {"error": ErrorView.of(one.error, codec)})


class Attempts(Wire):
    attempts: Sequence[AttemptView]


class ReasonView(Wire):
    because: str
    text: str
    at: datetime | None
    advice: str | None


class WhyView(Wire):
    """Why it is not running, or not any more: the weightiest reason first."""

    id: UUID
    state: State
    reasons: Sequence[ReasonView]

    @staticmethod
    def of(answer: Why) -> WhyView:
        reasons = [
            ReasonView(because=one.because, text=one.text, at=time(one.at), advice=one.advice)
            for one in answer.reasons
        ]
        return WhyView(id=answer.job_id, state=answer.state, reasons=reasons)


class Moved(Wire):
    """Where a job stands after what was done to it."""

    id: UUID
    state: State


class CancelView(Wire):
    """`canceled`, `requested` (its worker is told, and it will win), or the end that came first."""

    id: UUID
    status: str
    cleanup_scheduled: bool


class EventView(Wire):
    id: str
    seq: int
    at: datetime
    type: str
    job_id: UUID
    correlation_id: str | None
    data: Mapping[str, Any]


class EventPageView(Wire):
    """`cursor` is the last event's id, to go on from. When `ended`, nothing will follow."""

    events: Sequence[EventView]
    cursor: str | None
    ended: bool


class RefusedView(Wire):
    id: UUID
    code: str
    detail: str


class ActionView(Wire):
    """`refused` tells the first of those that were; `cursor` leads on, null is the end."""

    matched: int
    done: int
    refused: Sequence[RefusedView]
    cursor: str | None
