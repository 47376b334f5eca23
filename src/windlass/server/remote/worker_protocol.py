"""Worker protocol: converts task tokens, outcomes and records of remote workers."""

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
from windlass.core.decisions.transition import ApplyResult, Status, Transition
from windlass.core.errors import WindlassError
from windlass.core.event import Record
from windlass.core.job.failure import Failure
from windlass.core.job.lease import Lease
from windlass.core.job.progress import StageMap
from windlass.core.job.row import JobRow
from windlass.core.size_limits import MAX_TRACEBACK
from windlass.core.task_token import TaskToken
from windlass.server.auth.authenticator import CLAIM_KEY_INVALID
from windlass.server.context import RequestContext
from windlass.server.problems import ApiError, invalid_field, problem
from windlass.server.schemas.requests import parse_duration
from windlass.server.schemas.worker import (
    ErrorItem,
    RecordItem,
    SettleItem,
    TaskTokenItem,
    WorkResult,
)
from windlass.worker.error_info import MAX_MESSAGE, ErrorInfo
from windlass.worker.event_buffer import storable_text
from windlass.worker.executor import failure_from_info

# Seconds after the lease: an expired lease counts until a rescue, and server clocks differ.
TOKEN_SLACK = 300.0


async def token_for(
    ctx: RequestContext, lease: Lease, queue: str, seconds: float, api_key_id: str
) -> str:
    """Return a token that lasts as long as the lease by the server's clock, plus `TOKEN_SLACK`."""
    expires = after(SystemClock().now(), seconds + TOKEN_SLACK)
    token = TaskToken(lease=lease, queue=queue, expires_at=expires, api_key_id=api_key_id)
    return await ctx.server.token_signer.sign(token)


def lease_seconds(row: JobRow) -> float:
    """Return the duration of the lease, by the store's clock alone."""
    assert row.lease_until is not None
    return (row.lease_until - (row.started_at or row.updated_at)) / SECOND


async def token_of(ctx: RequestContext, item: TaskTokenItem) -> TaskToken:
    """Return the verified task token of an item, or raise."""
    own = ctx.caller.attempt
    if item.task_token is None:
        if own is None:
            raise invalid_field(
                "taskToken", "missing; use the token of the claim or of the last extension"
            )
        return own
    token = await ctx.server.token_signer.read(item.task_token)
    if token is None:
        raise invalid_field("taskToken", "invalid task token")
    if own is not None and token.lease != own.lease:
        raise ApiError("forbidden", "the Authorization header has the token of another attempt")
    if token.expires_at <= SystemClock().now():
        raise invalid_field("taskToken", "expired; extend the lease in time, and use its new token")
    if not await ctx.server.authenticator.claim_key_valid(token):
        raise invalid_field("taskToken", CLAIM_KEY_INVALID)
    return token


def work_result(result: ApplyResult) -> WorkResult:
    return WorkResult(
        status=result.status.value,
        state=result.state,
        problem=None if result.error is None else problem(result.error),
    )


def refused_result(error: WindlassError | ApiError) -> WorkResult:
    return WorkResult(status=Status.REFUSED.value, problem=problem(error))


class RequestReader:
    """Converts the items of one request to core values."""

    def __init__(self, ctx: RequestContext) -> None:
        self._codec: Codec = ctx.app.codec
        self._tasks = ctx.app.tasks
        self._stages: StageMap = ctx.app.hooks.stages

    def records(self, items: Sequence[RecordItem], row: JobRow | None) -> tuple[Record, ...]:
        return tuple(self._record(one, self._stages_of(row)) for one in items)

    def _stages_of(self, row: JobRow | None) -> StageMap:
        spec = None if row is None else self._tasks.get(row.task)
        return (spec.options.stages if spec is not None else None) or self._stages

    def _record(self, one: RecordItem, stages: StageMap) -> Record:
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

    def settlement(self, item: SettleItem, row: JobRow, lease: Lease) -> Transition:
        """Return the transition that settles an attempt. The store checks the lease."""
        held = replace(row, fence=lease.fence, token=lease.token)
        outcome = self._outcome(item)
        return settle(held, outcome, random=random.random, records=self.records(item.records, row))

    def _outcome(self, item: SettleItem) -> Outcome:
        _check_fields(item)
        delay = None if item.delay is None else parse_duration("delay", item.delay)
        match item.outcome:
            case "succeeded":
                return Succeeded(result=self._codec.encode(item.result, Purpose.RESULT))
            case "failed":
                assert item.error is not None
                return Failed(failure=self._failure(item.error), delay=delay)
            case "snoozed":
                assert delay is not None
                return Snoozed(delay=delay)
            case "released":
                return Released()
            case "canceled":
                return Aborted(reason=item.reason)

    def _failure(self, error: ErrorItem) -> Failure:
        traceback_bytes = (error.traceback or "").encode("utf-8", "replace")
        info = ErrorInfo(
            type=storable_text(error.type),
            message=storable_text(error.message, MAX_MESSAGE),
            traceback=traceback_bytes[-MAX_TRACEBACK:].decode("utf-8", "ignore"),
            code=error.code or error.type,
            retryable=error.retryable,
        )
        return failure_from_info(info, self._codec, error.step)


_ALLOWED_FIELDS = {
    "succeeded": {"result"},
    "failed": {"error", "delay"},
    "released": set[str](),
    "snoozed": {"delay"},
    "canceled": {"reason"},
}


def _check_fields(item: SettleItem) -> None:
    """Raise if a field does not belong to the outcome, or is missing."""
    allowed = _ALLOWED_FIELDS[item.outcome]
    for name in ("result", "error", "delay", "reason"):
        if getattr(item, name) is not None and name not in allowed:
            raise invalid_field(name, f"not allowed with the outcome {item.outcome!r}")
    if item.outcome == "failed" and item.error is None:
        raise invalid_field("error", "required with the outcome 'failed': {type, message}")
    if item.outcome == "snoozed" and item.delay is None:
        raise invalid_field("delay", "required with the outcome 'snoozed'")
