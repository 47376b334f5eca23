"""Worker API, for workers in any language: claim jobs, then act for their attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fastapi import Request

from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.transition import Checkpoint, Status, Transition, check_records
from windlass.core.errors import WindlassError
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult, Lease, check_lease
from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.context import Ctx, RequestContext
from windlass.server.problems import ApiError, invalid_field
from windlass.server.remote import worker_presence
from windlass.server.remote.worker_protocol import (
    RequestReader,
    lease_seconds,
    refused_result,
    token_for,
    token_of,
    work_result,
)
from windlass.server.schemas.jobs import JobView, decode_value, time
from windlass.server.schemas.requests import parse_duration
from windlass.server.schemas.worker import (
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

POLL_INTERVAL = 1.0  # seconds; finds jobs that became claimable without a wakeup
MAX_WAIT = 20.0  # seconds; below the usual timeouts of proxies
S = TypeVar("S", bound=TaskTokenItem)
R = TypeVar("R", Transition, AttemptRecords)


async def claim(ctx: Ctx, body: ClaimRequest, request: Request) -> ClaimedList:
    """Claim queued jobs, each with a task token for its attempt.

    With `wait`, the call waits for a job if there is none.
    """
    limit, wanted = ctx.server.config.max_batch, sum(body.queues.values())
    if wanted > limit:
        raise invalid_field("queues", f"{wanted:,} jobs requested at once, the limit is {limit:,}")
    request_claim = Claim(
        token=_claim_id(body.claim_id),
        worker=body.worker,
        queues=tuple(body.queues.items()),
        lease=None if body.lease is None else parse_duration("lease", body.lease),
    )
    wait = min(parse_duration("wait", body.wait), MAX_WAIT)
    await worker_presence.publish(ctx, body)
    rows = await _claim_jobs(ctx, request_claim, wait, request)
    known = await worker_presence.return_unknown(ctx, rows, frozenset(body.tasks))
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


async def _claim_jobs(
    ctx: RequestContext, request_claim: Claim, wait: float, request: Request
) -> list[JobRow]:
    """Claim jobs, and wait for one if there is none.

    Waits for: a job, for at most `wait` seconds, the disconnect of the caller, or the shutdown.
    Guarantees: claims nothing for a caller that is known to be gone or without access. If it is
    gone later, the lease expires, as with any lost worker. The first claim needs no stream quota.
    """
    store, wakeups = ctx.client.store, ctx.server.wakeups
    clock = asyncio.get_running_loop().time
    end = clock() + wait
    cursor = await wakeups.cursor()
    rows = await store.claim(request_claim)
    if rows or wait <= 0:
        return rows
    with ctx.long_poll() as ending:
        while (left := end - clock()) > 0:
            await _first_of(wakeups.wait(cursor, min(left, POLL_INTERVAL)), ending.wait())
            if ending.is_set() or await request.is_disconnected():
                return []
            cursor = await wakeups.cursor()
            rows = await store.claim(request_claim)
            if rows:
                return rows
    return []


async def _first_of(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _view(ctx: RequestContext, row: JobRow, steps: Mapping[str, Checkpoint]) -> ClaimedView:
    until = time(row.lease_until)
    assert until is not None
    return ClaimedView(
        task_token=await token_for(
            ctx, row.lease, row.queue, lease_seconds(row), ctx.caller.key_id or ""
        ),
        lease_until=until,
        timeout=row.policy.timeout,
        checkpoints=_values(steps, ctx.app.codec),
        job=JobView.from_row(row, ctx.app.codec),
    )


def _values(steps: Mapping[str, Checkpoint], codec: Codec) -> dict[str, Any]:
    return {
        step: decode_value(codec, one.value, Purpose.CHECKPOINT)[0] for step, one in steps.items()
    }


async def extend(ctx: Ctx, body: ExtendBatch) -> ExtendLeaseResults:
    """Extend leases. Each result has a new task token, and whether a cancel was requested."""
    tokens = await _verified_tokens(ctx, body.tasks)
    seconds = DEFAULT_LEASE if body.lease is None else parse_duration("lease", body.lease)
    check_lease(seconds)
    good = [one for one in tokens if isinstance(one, TaskToken)]
    results = iter(await ctx.client.store.extend([one.lease for one in good], seconds))
    return ExtendLeaseResults(
        results=[
            ExtendLeaseResult(**dict(one))
            if isinstance(one, WorkResult)
            else await _extended(ctx, one, next(results), seconds)
            for one in tokens
        ]
    )


async def _extended(
    ctx: RequestContext, token: TaskToken, extended: ExtendResult, seconds: float
) -> ExtendLeaseResult:
    if extended.stale:
        return ExtendLeaseResult(status=Status.STALE.value)
    return ExtendLeaseResult(
        status=Status.APPLIED.value,
        task_token=await token_for(ctx, token.lease, token.queue, seconds, token.api_key_id),
        lease_until=time(extended.lease_until),
        cancel_requested=extended.cancel_requested,
    )


async def settle(ctx: Ctx, body: SettleBatch) -> WorkResults:
    """Report the outcome of attempts. A repeated call returns the same results."""
    tokens = await _verified_tokens(ctx, body.tasks)
    rows = await _rows(ctx, tokens)
    reader = RequestReader(ctx)

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
            one if isinstance(one, WorkResult) else work_result(next(results))
            for one in transitions
        ]
    )


async def record(ctx: Ctx, body: RecordsBatch) -> WorkResults:
    """Append records of attempts: progress, log lines, artifacts, results of steps."""
    tokens = await _verified_tokens(ctx, body.tasks)
    rows = await _rows(ctx, tokens)
    reader = RequestReader(ctx)

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
            one if isinstance(one, WorkResult) else work_result(next(results))
            for one in attempt_records
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
    for one in tasks:
        try:
            found.append(await token_of(ctx, one))
        except (WindlassError, ApiError) as error:
            found.append(refused_result(error))
    return found


async def _rows(
    ctx: RequestContext, tokens: Sequence[TaskToken | WorkResult]
) -> dict[UUID, JobRow]:
    ids = [one.lease.job_id for one in tokens if isinstance(one, TaskToken)]
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
