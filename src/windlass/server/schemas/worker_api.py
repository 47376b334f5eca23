"""Schemas of the worker API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from windlass.core.event import EventType
from windlass.core.job.state import State
from windlass.core.size_limits import MAX_NAME
from windlass.core.task_token import MAX_LENGTH
from windlass.schemas.base import JsonModel
from windlass.schemas.jobs import JobView
from windlass.server.problem_details import Problem
from windlass.server.schemas.base import Duration, RequestModel

Token = Annotated[str, Field(max_length=MAX_LENGTH)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Slots = Annotated[int, Field(ge=1, le=1000)]


class ClaimRequest(RequestModel):
    """A claim: `queues` has the maximum number of jobs per queue, `tasks` what the worker can run.

    A repeated call with the same `claimId` returns the same jobs, for example after a lost
    response. `lease` overrides the lease of the job; `wait` is the maximum time to wait for a job.
    """

    worker: Name
    queues: Annotated[Mapping[Name, Slots], Field(min_length=1, max_length=100)]
    tasks: Annotated[Sequence[Name], Field(min_length=1, max_length=1000)]
    claim_id: str | None = None
    lease: Duration | None = None
    wait: Duration = 0.0


class ClaimedView(JsonModel):
    """A claimed job. `checkpoints` are the results of steps that earlier attempts completed."""

    task_token: str
    lease_until: datetime
    timeout: float | None
    checkpoints: Mapping[str, Any]
    job: JobView


class ClaimedList(JsonModel):
    """Claimed jobs; `claimId` is the given or generated one, to repeat the call."""

    claim_id: str
    jobs: Sequence[ClaimedView]


class TaskTokenItem(RequestModel):
    """An item with a task token; default: the token in the Authorization header."""

    task_token: Token | None = None


class RecordItem(RequestModel):
    """A record of an attempt; `n` counts from 1, so that repeated records are dropped.

    `percent` is the progress of the whole job. `checkpoint` is stored as the result of `step`.
    """

    n: Annotated[int, Field(ge=1, lt=2**53)]
    type: EventType
    data: Mapping[str, Any] | None = None
    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    stage: str | None = None
    phase: str | None = None
    step: str | None = None
    status: str | None = None
    checkpoint: Any = None


class ErrorItem(RequestModel):
    """The error of an attempt. Errors are grouped by `code`, by default the type."""

    type: Name
    message: str
    traceback: str | None = None
    code: Name | None = None
    retryable: bool = True
    step: str | None = None


class SettleItem(TaskTokenItem):
    """The outcome of an attempt: a result, an error, or requeued (`released`, `snoozed`).

    `delay` is the time until the next attempt; with an error, it overrides the job's backoff.
    """

    outcome: Literal["succeeded", "failed", "released", "snoozed", "canceled"]
    result: Any = None
    error: ErrorItem | None = None
    delay: Duration | None = None
    reason: str | None = None
    records: Sequence[RecordItem] = ()


class RecordsItem(TaskTokenItem):
    records: Annotated[Sequence[RecordItem], Field(min_length=1)]


class ExtendBatch(RequestModel):
    """Leases to extend; `lease` counts from now: seconds, or text like "5m"; default 30 seconds."""

    tasks: Annotated[Sequence[TaskTokenItem], Field(min_length=1)]
    lease: Duration | None = None


class SettleBatch(RequestModel):
    tasks: Annotated[Sequence[SettleItem], Field(min_length=1)]


class RecordsBatch(RequestModel):
    tasks: Annotated[Sequence[RecordsItem], Field(min_length=1)]


class WorkResult(JsonModel):
    """`status`: applied, stale (lease lost: stop the task), conflict, missing, busy, or refused.

    `state` is the new state of the job: `canceled` if a cancel was requested before a success.
    """

    status: str
    state: State | None = None
    problem: Problem | None = None


class WorkResults(JsonModel):
    """One result for each item of the request, in the same order."""

    results: Sequence[WorkResult]


class ExtendLeaseResult(WorkResult):
    """`taskToken` replaces the old token. With `cancelRequested`, stop the task and settle."""

    task_token: str | None = None
    lease_until: datetime | None = None
    cancel_requested: bool = False


class ExtendLeaseResults(JsonModel):
    results: Sequence[ExtendLeaseResult]
