"""What workers elsewhere are asked for, and told: JSON, for any language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from windlass.core.event import EventType
from windlass.core.job.state import State
from windlass.core.sizes import MAX_NAME
from windlass.core.task_token import MAX_LENGTH
from windlass.server.problems import Problem
from windlass.server.schemas.jobs import JobView, Wire
from windlass.server.schemas.requests import Asked, Length

Token = Annotated[str, Field(max_length=MAX_LENGTH)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Slots = Annotated[int, Field(ge=1, le=1000)]


class ClaimAsked(Asked):
    """`queues` says how many of each at most, `tasks` what this worker can run.

    With the same `claimId`, a call whose answer was lost is answered again with the same jobs.
    `lease` overrules what the job says; `wait` is how long the call may wait for a job.
    """

    worker: Name
    queues: Annotated[Mapping[Name, Slots], Field(min_length=1, max_length=100)]
    tasks: Annotated[Sequence[Name], Field(min_length=1, max_length=1000)]
    claim_id: str | None = None
    lease: Length | None = None
    wait: Length = 0.0


class ClaimedView(Wire):
    """One attempt. `checkpoints` are the results of steps that earlier attempts finished."""

    task_token: str
    lease_until: datetime
    timeout: float | None
    checkpoints: Mapping[str, Any]
    job: JobView


class ClaimedList(Wire):
    """`claimId` is the one that was given, or made: to repeat the call with."""

    claim_id: str
    jobs: Sequence[ClaimedView]


class Spoken(Asked):
    """Without a token, the one that the request itself was made with."""

    task_token: Token | None = None


class RecordAsked(Asked):
    """One thing that an attempt says; `n` counts them from 1, so that a repeat is dropped.

    `percent` is the whole job's. A `checkpoint` is kept as the result of its `step`.
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


class ErrorAsked(Asked):
    """What went wrong. `code` groups errors; else the type does. Retried unless it says not to."""

    type: Name
    message: str
    traceback: str | None = None
    code: Name | None = None
    retryable: bool = True
    step: str | None = None


class SettleAsked(Spoken):
    """How the attempt ended: with a result, an error, or given back (`released`, `snoozed`).

    `delay` is when to come back: of an error it overrules the job's own backoff.
    """

    outcome: Literal["succeeded", "failed", "released", "snoozed", "canceled"]
    result: Any = None
    error: ErrorAsked | None = None
    delay: Length | None = None
    reason: str | None = None
    records: Sequence[RecordAsked] = ()


class SayAsked(Spoken):
    records: Annotated[Sequence[RecordAsked], Field(min_length=1)]


class ExtendBatch(Asked):
    """`lease` is from now on: seconds, or words like "5m"; 30 seconds if it is not given."""

    tasks: Annotated[Sequence[Spoken], Field(min_length=1)]
    lease: Length | None = None


class SettleBatch(Asked):
    tasks: Annotated[Sequence[SettleAsked], Field(min_length=1)]


class SayBatch(Asked):
    tasks: Annotated[Sequence[SayAsked], Field(min_length=1)]


class WorkAnswer(Wire):
    """`applied`, or why not: `stale` (stop: the lease is gone), conflict, missing, busy, refused.

    `state` is the job's state afterwards: `canceled` where a cancel came before a success.
    """

    status: str
    state: State | None = None
    problem: Problem | None = None


class WorkAnswers(Wire):
    """One for each of the request, in its order."""

    answers: Sequence[WorkAnswer]


class ExtendAnswer(WorkAnswer):
    """The new token takes the place of the old. `cancelRequested`: stop the task, and settle."""

    task_token: str | None = None
    lease_until: datetime | None = None
    cancel_requested: bool = False


class ExtendAnswers(Wire):
    answers: Sequence[ExtendAnswer]
