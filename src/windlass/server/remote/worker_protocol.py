"""What workers elsewhere say, in the words of the core: their leases, outcomes and records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from windlass.core.clock import SECOND, SystemClock, after
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    settle,
)
from windlass.core.decisions.transition import Answer, Status, Transition
from windlass.core.errors import WindlassError
from windlass.core.event import Record
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Lease
from windlass.core.job.progress import StageMap
from windlass.core.job.row import JobRow
from windlass.core.sizes import MAX_TRACEBACK
from windlass.core.task_token import TaskToken
from windlass.server.auth.authenticator import REVOKED
from windlass.server.context import Visit
from windlass.server.problems import Refusal, problem, wrong
from windlass.server.schemas.requests import length
from windlass.server.schemas.worker import ErrorAsked, RecordAsked, SettleAsked, Spoken, WorkAnswer
from windlass.worker.error_info import MAX_MESSAGE, Raised
from windlass.worker.event_buffer import storable
from windlass.worker.executor import failure_of

# A lease that ran out counts until somebody takes it back; and clocks of servers differ a little.
SLACK = 300.0


async def token_for(here: Visit, lease: Lease, queue: str, seconds: float, holder: str) -> str:
    """Good for as long as the lease, by the clock of servers, and a while."""
    expires = after(SystemClock().now(), seconds + SLACK)
    token = TaskToken(lease=lease, queue=queue, expires_at=expires, holder=holder)
    return await here.site.signing.sign(token)


def lease_seconds(row: JobRow) -> float:
    """How long the lease was given for, by the store's clock alone."""
    assert row.lease_until is not None
    return (row.lease_until - (row.started_at or row.updated_at)) / SECOND


async def token_of(here: Visit, spoken: Spoken) -> TaskToken:
    """The token that somebody speaks with, or a refusal that says why it is none."""
    own = here.caller.attempt
    if spoken.task_token is None:
        if own is None:
            raise wrong("taskToken", "it is missing; a claim, and each extension, gives one")
        return own
    token = await here.site.signing.read(spoken.task_token)
    if token is None:
        raise wrong("taskToken", "it was not given out here")
    if own is not None and token.lease != own.lease:
        raise Refusal("forbidden", "the request is made with the token of another attempt")
    if token.expires_at <= SystemClock().now():
        raise wrong("taskToken", "it has expired; extend the lease in time, and use its new token")
    if not await here.site.door.trusts(token):
        raise wrong("taskToken", REVOKED)
    return token


def told(answer: Answer) -> WorkAnswer:
    return WorkAnswer(
        status=answer.status.value,
        state=answer.state,
        problem=None if answer.error is None else problem(answer.error),
    )


def refused(error: WindlassError | Refusal) -> WorkAnswer:
    return WorkAnswer(status=Status.REFUSED.value, problem=problem(error))


class Reader:
    """Reads what attempts of one request say."""

    def __init__(self, here: Visit) -> None:
        self._codec: Codec = here.app.codec
        self._tasks = here.app.tasks
        self._stages: StageMap = here.app.kit.stages

    def records(self, given: Sequence[RecordAsked], row: JobRow | None) -> tuple[Record, ...]:
        return tuple(self._record(one, self._stages_of(row)) for one in given)

    def _stages_of(self, row: JobRow | None) -> StageMap:
        spec = None if row is None else self._tasks.get(row.task)
        return (spec.options.stages if spec is not None else None) or self._stages

    def _record(self, one: RecordAsked, stages: StageMap) -> Record:
        phase = one.phase
        if phase is None and one.stage is not None:
            phase = stages.phase(one.stage).name
        checkpoint = None
        if "checkpoint" in one.model_fields_set:
            checkpoint = self._codec.encode(one.checkpoint, Purpose.CHECKPOINT)
        return Record(
            n=one.n,
            type=one.type,
            body=None if one.data is None else self._codec.encode(dict(one.data), Purpose.EVENT),
            percent=one.percent,
            stage=one.stage,
            phase=phase,
            step=one.step,
            status=one.status,
            checkpoint=checkpoint,
        )

    def settlement(self, given: SettleAsked, row: JobRow, lease: Lease) -> Transition:
        """What the end of an attempt asks for. Whether the lease is still held, the store says."""
        held = replace(row, fence=lease.fence, token=lease.token)
        outcome = self._outcome(given)
        return settle(held, outcome, random=random.random, records=self.records(given.records, row))

    def _outcome(self, given: SettleAsked) -> Outcome:
        _check_fields(given)
        delay = None if given.delay is None else length("delay", given.delay)
        match given.outcome:
            case "succeeded":
                return Succeeded(result=self._codec.encode(given.result, Purpose.RESULT))
            case "failed":
                assert given.error is not None
                return Failed(failure=self._failure(given.error), delay=delay)
            case "snoozed":
                assert delay is not None
                return Snoozed(delay=delay)
            case "released":
                return Released()
            case "canceled":
                return Aborted(reason=given.reason)

    def _failure(self, error: ErrorAsked) -> Failure:
        trace = (error.traceback or "").encode("utf-8", "replace")
        raised = Raised(
            type=storable(error.type),
            message=storable(error.message, MAX_MESSAGE),
            traceback=trace[-MAX_TRACEBACK:].decode("utf-8", "ignore"),
            code=error.code or error.type,
            retryable=error.retryable,
        )
        return failure_of(raised, self._codec, error.step)


_MAY_HAVE = {
    "succeeded": {"result"},
    "failed": {"error", "delay"},
    "released": set[str](),
    "snoozed": {"delay"},
    "canceled": {"reason"},
}


def _check_fields(given: SettleAsked) -> None:
    """What an outcome cannot have is a mistake, not to be passed over."""
    may = _MAY_HAVE[given.outcome]
    for name in ("result", "error", "delay", "reason"):
        if getattr(given, name) is not None and name not in may:
            raise wrong(name, f"an attempt that is {given.outcome} has no {name}")
    if given.outcome == "failed" and given.error is None:
        raise wrong("error", "it is missing; say what went wrong: {type, message}")
    if given.outcome == "snoozed" and given.delay is None:
        raise wrong("delay", "it is missing; say when to come back")
