"""Schemas of jobs, attempts, diagnoses and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from windlass.core.admission.gates import limit_name
from windlass.core.clock import Instant, to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.diagnosis import Diagnosis
from windlass.core.errors import CodecError
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.failure_details import details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import Count
from windlass.insights.job_graph import JobGraph
from windlass.server.problem_details import Problem
from windlass.server.schemas.base import ResponseModel, shared_fields, time


def iso(instant: Instant) -> str:
    return to_datetime(instant).isoformat().replace("+00:00", "Z")


def decode_value(codec: Codec, data: bytes | None, purpose: Purpose) -> tuple[Any, bool]:
    """Return the value, and whether it is sealed: this server cannot decode it."""
    if data is None:
        return None, False
    try:
        return codec.decode(data, purpose), False
    except (CodecError, UnicodeDecodeError):
        return None, True


class ErrorView(ResponseModel):
    """The error of an attempt."""

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
        decoded, _ = decode_value(codec, failure.body, Purpose.ERROR)
        body = decoded if isinstance(decoded, dict) else {}
        return ErrorView(
            code=failure.code,
            type=body.get("type"),
            message=body.get("message") or failure.code,
            error_type=failure.kind.value,
            step=failure.step,
            attempt=failure.attempt,
            at=time(failure.at),
            traceback=body.get("traceback"),
        )


class FailureView(ResponseModel):
    """Failure details for people: what failed, where, the kind of error, and advice."""

    summary: str
    stage: str | None
    category: str
    advice: str


class JobSummary(ResponseModel):
    """A job in a list, without values that need decoding."""

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
        return cls(**cls.field_values(row))

    @classmethod
    def field_values(cls, row: JobRow) -> dict[str, Any]:
        return shared_fields(cls, row) | {
            "error_code": row.error.code if row.error else None,
            "gate": limit_name(row.gate) if row.gate else None,
        }


class JobNode(JobSummary):
    """A job in a graph; `dependsOn` are the jobs it waits or waited for."""

    depends_on: Sequence[UUID]

    @staticmethod
    def with_parents(row: JobRow, parents: Sequence[UUID]) -> JobNode:
        return JobNode(**JobNode.field_values(row), depends_on=parents)


class GraphView(ResponseModel):
    """Jobs of a dependency graph, nearest first; `capped` if there are more."""

    jobs: Sequence[JobNode]
    capped: bool

    @staticmethod
    def of(graph: JobGraph) -> GraphView:
        jobs = [JobNode.with_parents(row, graph.parents[row.id]) for row in graph.rows]
        return GraphView(jobs=jobs, capped=graph.capped)


class JobView(JobSummary):
    """A job with all its data. `sealed`: this server cannot decode some of it."""

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
    def from_row(cls, row: JobRow, codec: Codec, **more: Any) -> Self:
        arguments, arguments_sealed = decode_value(codec, row.payload, Purpose.PAYLOAD)
        result, result_sealed = decode_value(codec, row.result, Purpose.RESULT)
        failure = None
        if row.state is State.FAILED and row.error is not None:
            failure = FailureView(
                **shared_fields(FailureView, details(row.error, task=row.task, stage=row.stage))
            )
        values = cls.field_values(row) | {
            "arguments": arguments,
            "result": result,
            "last_error": ErrorView.of(row.error, codec),
            "failure_details": failure,
            "last_completed_step": row.last_step,
            "sealed": arguments_sealed or result_sealed,
        }
        return cls(**values, **more)


class EnqueuedView(JobView):
    """The job of an enqueue request; `duplicate` if it existed before."""

    duplicate: bool


class JobPage(ResponseModel):
    """A page of jobs, maybe short or empty; `cursor` leads to the next page, null is the end."""

    jobs: Sequence[JobSummary]
    cursor: str | None


class CountView(ResponseModel):
    """A number of jobs; a lower bound if `capped`."""

    count: int
    capped: bool

    @staticmethod
    def of(count: Count) -> CountView:
        return CountView(count=count.number, capped=count.capped)


class EnqueueBatchResult(ResponseModel):
    """`status`: created, duplicate, conflict or refused; the last two have a problem and no job."""

    status: str
    job: JobSummary | None = None
    problem: Problem | None = None


class EnqueueBatchResults(ResponseModel):
    """One result for each job of the request, in the same order."""

    results: Sequence[EnqueueBatchResult]


class AttemptView(ResponseModel):
    """An attempt of a job. `delay` is the time until the next attempt, in seconds."""

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
    def from_attempt(attempt: Attempt, codec: Codec) -> AttemptView:
        values = shared_fields(AttemptView, attempt)
        return AttemptView(**values | {"error": ErrorView.of(attempt.error, codec)})


class Attempts(ResponseModel):
    attempts: Sequence[AttemptView]


class ReasonView(ResponseModel):
    code: str
    text: str
    at: datetime | None
    advice: str | None


class DiagnosisView(ResponseModel):
    """Reasons why a job is not running, most important first."""

    id: UUID
    state: State
    reasons: Sequence[ReasonView]

    @staticmethod
    def of(diagnosis: Diagnosis) -> DiagnosisView:
        reasons = [
            ReasonView(code=reason.code, text=reason.text, at=time(reason.at), advice=reason.advice)
            for reason in diagnosis.reasons
        ]
        return DiagnosisView(id=diagnosis.job_id, state=diagnosis.state, reasons=reasons)


class JobStateView(ResponseModel):
    """The state of a job after an action."""

    id: UUID
    state: State


class CancelView(ResponseModel):
    """`status`: canceled, requested (it will end as canceled), or the final state it had before."""

    id: UUID
    status: str
    cleanup_scheduled: bool


class EventView(ResponseModel):
    id: str
    seq: int
    at: datetime
    type: str
    job_id: UUID
    correlation_id: str | None
    data: Mapping[str, Any]


class EventPageView(ResponseModel):
    """A page of events; `cursor` is the id of the last one. When `ended`, no events will follow."""

    events: Sequence[EventView]
    cursor: str | None
    ended: bool


class RefusedView(ResponseModel):
    id: UUID
    code: str
    detail: str


class BulkActionView(ResponseModel):
    """Result of a bulk action; `refused` has the first 20 rejected jobs, `cursor` leads on."""

    matched: int
    done: int
    refused: Sequence[RefusedView]
    cursor: str | None
