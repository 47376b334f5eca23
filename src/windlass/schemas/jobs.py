"""Schemas of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from windlass.core.admission.gates import limit_name
from windlass.core.codec import Codec, Purpose
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges, OnParent
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, Page
from windlass.insights.job_graph import JobGraph
from windlass.schemas.attempts import Attempts, AttemptView, ErrorView, FailureView
from windlass.schemas.base import JsonModel, decode_value, shared_fields, time


class JobSummary(JsonModel):
    """A job in a list, without values that need decoding.

    `gate` is the limit that it waits for. `seq` is the number of its last event.
    """

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
            "gate": None if row.gate is None else limit_name(row.gate),
            "error_code": row.error.code if row.error else None,
        }


class JobNode(JobSummary):
    """A job in a graph; `dependsOn` are the jobs it waits or waited for."""

    depends_on: Sequence[UUID]

    @staticmethod
    def with_parents(row: JobRow, parents: Sequence[UUID]) -> JobNode:
        return JobNode(**JobNode.field_values(row), depends_on=parents)


class GraphView(JsonModel):
    """Jobs of a dependency graph, nearest first; `capped` if there are more."""

    jobs: Sequence[JobNode]
    capped: bool

    @staticmethod
    def of(graph: JobGraph) -> GraphView:
        jobs = [JobNode.with_parents(row, graph.parents[row.id]) for row in graph.rows]
        return GraphView(jobs=jobs, capped=graph.capped)


class JobView(JobSummary):
    """A job with all its data. `sealed`: some of it cannot be decoded here."""

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
    cancel_requested_at: datetime | None
    cancel_by: str | None
    cancel_reason: str | None
    can_resume: bool
    last_completed_step: str | None
    sealed: bool

    @classmethod
    def from_row(cls, row: JobRow, codec: Codec, **more: Any) -> Self:
        arguments, arguments_sealed = decode_value(codec, row.payload, Purpose.PAYLOAD)
        result, result_sealed = decode_value(codec, row.result, Purpose.RESULT)
        values = cls.field_values(row) | {
            "arguments": arguments,
            "result": result,
            "last_error": ErrorView.of(row.error, codec),
            "failure_details": FailureView.of(row),
            "cancel_requested_at": time(row.cancel_at),
            "last_completed_step": row.last_step,
            "sealed": arguments_sealed or result_sealed,
        }
        return cls(**values, **more)


class EnqueuedView(JobView):
    """The job of an enqueue request; `duplicate` if it existed before."""

    duplicate: bool


class JobDetails(JobView):
    """A job with its attempts, oldest first, and the jobs before and after it."""

    depends_on: Sequence[UUID]
    awaited_by: Sequence[UUID]
    attempts: Sequence[AttemptView]

    @staticmethod
    def of_job(row: JobRow, edges: Edges, attempts: Sequence[Attempt], codec: Codec) -> JobDetails:
        return JobDetails.from_row(
            row,
            codec,
            depends_on=edges.parents,
            awaited_by=edges.children,
            attempts=Attempts.of(attempts, codec).attempts,
        )


class JobPage(JsonModel):
    """A page of jobs, maybe short or empty; `cursor` leads to the next page, null is the end."""

    jobs: Sequence[JobSummary]
    cursor: str | None

    @staticmethod
    def of(page: Page) -> JobPage:
        return JobPage(jobs=[JobSummary.of(row) for row in page.rows], cursor=page.cursor)


class CountView(JsonModel):
    """A number of jobs; a lower bound if `capped`."""

    count: int
    capped: bool

    @staticmethod
    def of(count: Count) -> CountView:
        return CountView(count=count.number, capped=count.capped)
