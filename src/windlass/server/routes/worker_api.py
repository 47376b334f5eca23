"""Worker API, for workers in any language: claim jobs, then act for their attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fastapi import Request

from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.transition import Checkpoint, Status, Transition, check_records
from windlass.core.errors import WindlassError
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult, Lease, check_lease
from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.schemas.base import decode_value, time
from windlass.schemas.jobs import JobView
from windlass.server.context import Ctx, RequestContext
from windlass.server.problem_details import ApiError, invalid_field
from windlass.server.remote import worker_presence
from windlass.server.remote.attempt_reports import AttemptReportReader, refused_result, work_result
from windlass.server.remote.task_tokens import issue_token, lease_seconds, verify_token
from windlass.server.remote.worker_claim import claim_jobs, snooze_unknown_tasks
from windlass.server.schemas.base import parse_duration
from windlass.server.schemas.worker_api import (
    ClaimedList,
    ClaimedView,
    ClaimRequest,
    ExtendBatch,
    ExtendLeaseResult,
    ExtendLeaseResults,
    RecordsBatch,
    RecordsItem,
    SettleBatch,
    SettleItem,
    TaskTokenItem,
    WorkResult,
    WorkResults,
)
from windlass.store import AttemptRecords

MAX_WAIT = 20.0  # seconds; below the usual timeouts of proxies
S = TypeVar("S", bound=TaskTokenItem)
R = TypeVar("R", Transition, AttemptRecords)


async def claim(ctx: Ctx, body: ClaimRequest, request: Request) -> ClaimedList:
    """Claim queued jobs, each with a task token for its attempt.

    With `wait`, the call waits for a job if there is none.
    """
    limit, requested = ctx.server.config.max_batch, sum(body.queues.values())
    if requested > limit:
        raise invalid_field(
            "queues", f"{requested:,} jobs requested at once, the limit is {limit:,}"
        )
    request_claim = Claim(
        token=_claim_id(body.claim_id),
        worker=body.worker,
        queues=tuple(body.queues.items()),
        lease=None if body.lease is None else parse_duration("lease", body.lease),
    )
    wait = min(parse_duration("wait", body.wait), MAX_WAIT)
    await worker_presence.publish(ctx, body)
    rows = await claim_jobs(ctx, request_claim, wait, request)
    known = await snooze_unknown_tasks(ctx, rows, frozenset(body.tasks))
    found = await ctx.client.store.checkpoints([row.id for row in known])
    return ClaimedList(
        claim_id=str(request_claim.token),
        jobs=[await _view(ctx, row, steps) for row, steps in zip(known, found, strict=True)],
    )


def _claim_id(text: str | None) -> UUID:
    if text is None:
        return uuid4()
    try:
        return UUID(text)
    except ValueError:
        raise invalid_field(
            "claimId", f"{text!r:.80} is not a UUID; generate one for each call"
        ) from None


async def _view(ctx: RequestContext, row: JobRow, steps: Mapping[str, Checkpoint]) -> ClaimedView:
    until = time(row.lease_until)
    assert until is not None
    return ClaimedView(
        task_token=await issue_token(
            ctx, row.lease, row.queue, lease_seconds(row), ctx.caller.key_id or ""
        ),
        lease_until=until,
        timeout=row.policy.timeout,
        checkpoints=_values(steps, ctx.app.codec),
        job=JobView.from_row(row, ctx.app.codec),
    )


def _values(steps: Mapping[str, Checkpoint], codec: Codec) -> dict[str, Any]:
    return {
        step: decode_value(codec, checkpoint.value, Purpose.CHECKPOINT)[0]
        for step, checkpoint in steps.items()
    }


async def extend(ctx: Ctx, body: ExtendBatch) -> ExtendLeaseResults:
    """Extend leases. Each result has a new task token, and whether a cancel was requested."""
    tokens = await _verified_tokens(ctx, body.tasks)
    seconds = DEFAULT_LEASE if body.lease is None else parse_duration("lease", body.lease)
    check_lease(seconds)
    good = [token for token in tokens if isinstance(token, TaskToken)]
    results = iter(await ctx.client.store.extend([item.lease for item in good], seconds))
    return ExtendLeaseResults(
        results=[
            ExtendLeaseResult(**dict(token))
            if isinstance(token, WorkResult)
            else await _extended(ctx, token, next(results), seconds)
            for token in tokens
        ]
    )


async def _extended(
    ctx: RequestContext, token: TaskToken, extended: ExtendResult, seconds: float
) -> ExtendLeaseResult:
    if extended.stale:
        return ExtendLeaseResult(status=Status.STALE.value)
    return ExtendLeaseResult(
        status=Status.APPLIED.value,
        task_token=await issue_token(ctx, token.lease, token.queue, seconds, token.api_key_id),
        lease_until=time(extended.lease_until),
        cancel_requested=extended.cancel_requested,
    )


async def settle(ctx: Ctx, body: SettleBatch) -> WorkResults:
    """Report the outcome of attempts. A repeated call returns the same results."""
    tokens = await _verified_tokens(ctx, body.tasks)
    rows = await _rows(ctx, tokens)
    reader = AttemptReportReader(ctx)

    def read(item: SettleItem, lease: Lease) -> Transition | WorkResult:
        row = rows.get(lease.job_id)
        if row is None:
            return WorkResult(status=Status.MISSING.value)
        return reader.settlement(item, row, lease)

    transitions = [_read_item(read, *pair) for pair in zip(body.tasks, tokens, strict=True)]
    results = iter(
        await ctx.client.store.apply([w for w in transitions if isinstance(w, Transition)])
    )
    return WorkResults(
        results=[
            transition if isinstance(transition, WorkResult) else work_result(next(results))
            for transition in transitions
        ]
    )


async def record(ctx: Ctx, body: RecordsBatch) -> WorkResults:
    """Append records of attempts: progress, log lines, artifacts, results of steps."""
    tokens = await _verified_tokens(ctx, body.tasks)
    rows = await _rows(ctx, tokens)
    reader = AttemptReportReader(ctx)

    def read(item: RecordsItem, lease: Lease) -> AttemptRecords | WorkResult:
        records = reader.records(item.records, rows.get(lease.job_id))
        check_records(records)
        return AttemptRecords(lease, records)

    attempt_records = [_read_item(read, *pair) for pair in zip(body.tasks, tokens, strict=True)]
    results = iter(
        await ctx.client.store.record([s for s in attempt_records if isinstance(s, AttemptRecords)])
    )
    return WorkResults(
        results=[
            item if isinstance(item, WorkResult) else work_result(next(results))
            for item in attempt_records
        ]
    )


async def _verified_tokens(
    ctx: RequestContext, tasks: Sequence[TaskTokenItem]
) -> list[TaskToken | WorkResult]:
    """Return the task token of each item, or the result that rejects only this item."""
    limit = ctx.server.config.max_batch
    if len(tasks) > limit:
        raise invalid_field("tasks", f"{len(tasks):,} items, the limit is {limit:,}")
    found: list[TaskToken | WorkResult] = []
    for task in tasks:
        try:
            found.append(await verify_token(ctx, task))
        except (WindlassError, ApiError) as error:
            found.append(refused_result(error))
    return found


async def _rows(
    ctx: RequestContext, tokens: Sequence[TaskToken | WorkResult]
) -> dict[UUID, JobRow]:
    ids = [token.lease.job_id for token in tokens if isinstance(token, TaskToken)]
    found = await ctx.client.store.get(ids)
    return {row.id: row for row in found if row is not None}


def _read_item(
    read: Callable[[S, Lease], R | WorkResult], item: S, token: TaskToken | WorkResult
) -> R | WorkResult:
    if isinstance(token, WorkResult):
        return token
    try:
        return read(item, token.lease)
    except WindlassError as error:
        return refused_result(error)
