"""Reports of attempts by remote workers: converts records and outcomes to core values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

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
from windlass.server.context import RequestContext
from windlass.server.problem_details import ApiError, invalid_field, problem
from windlass.server.schemas.base import parse_duration
from windlass.server.schemas.worker_api import (
    ErrorItem,
    RecordItem,
    SettleItem,
    WorkResult,
)
from windlass.worker.event_buffer import storable_text
from windlass.worker.execution.attempt_failure import failure_from_info
from windlass.worker.execution.error_info import MAX_ERROR_MESSAGE, ErrorInfo


def work_result(result: ApplyResult) -> WorkResult:
    return WorkResult(
        status=result.status.value,
        state=result.state,
        problem=None if result.error is None else problem(result.error),
    )


def refused_result(error: WindlassError | ApiError) -> WorkResult:
    return WorkResult(status=Status.REFUSED.value, problem=problem(error))


class AttemptReportReader:
    """Converts the items of one request to core values."""

    def __init__(self, ctx: RequestContext) -> None:
        self._codec: Codec = ctx.app.codec
        self._tasks = ctx.app.tasks
        self._stages: StageMap = ctx.app.parts.stages

    def records(self, items: Sequence[RecordItem], row: JobRow | None) -> tuple[Record, ...]:
        return tuple(self._record(item, self._stages_of(row)) for item in items)

    def _stages_of(self, row: JobRow | None) -> StageMap:
        spec = None if row is None else self._tasks.get(row.task)
        return (spec.options.stages if spec is not None else None) or self._stages

    def _record(self, item: RecordItem, stages: StageMap) -> Record:
        phase = item.phase
        if phase is None and item.stage is not None:
            phase = stages.phase(item.stage).name
        checkpoint = None
        if "checkpoint" in item.model_fields_set:
            checkpoint = self._codec.encode(item.checkpoint, Purpose.CHECKPOINT)
        return Record(
            n=item.n,
            type=item.type,
            body=None if item.data is None else self._codec.encode(dict(item.data), Purpose.EVENT),
            percent=item.percent,
            stage=item.stage,
            phase=phase,
            step=item.step,
            status=item.status,
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
            message=storable_text(error.message, MAX_ERROR_MESSAGE),
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
