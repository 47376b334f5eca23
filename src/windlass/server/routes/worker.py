"""Work, for workers in any language: take jobs, and speak for them by their task tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from fastapi import Request

from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.transition import Checkpoint, Status, Transition, check_records
from windlass.core.errors import WindlassError
from windlass.core.job.lease import DEFAULT_LEASE, Claim, Extended, Lease, check_lease
from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.context import Here, Visit
from windlass.server.problems import Refusal, wrong
from windlass.server.remote import worker_presence
from windlass.server.remote.worker_protocol import (
    Reader,
    lease_seconds,
    refused,
    token_for,
    token_of,
    told,
)
from windlass.server.schemas.jobs import JobView, opened, time
from windlass.server.schemas.requests import length
from windlass.server.schemas.worker import (
    ClaimAsked,
    ClaimedList,
    ClaimedView,
    ExtendAnswer,
    ExtendAnswers,
    ExtendBatch,
    SayAsked,
    SayBatch,
    SettleAsked,
    SettleBatch,
    Spoken,
    WorkAnswer,
    WorkAnswers,
)
from windlass.store import Saying

POLL = 1.0  # seconds: what comes without news is found by then
MAX_WAIT = 20.0  # seconds, below what proxies in between have patience for
S = TypeVar("S", bound=Spoken)
R = TypeVar("R", Transition, Saying)


async def claim(here: Here, body: ClaimAsked, request: Request) -> ClaimedList:
    """Take queued jobs, each with a token that speaks for its attempt."""
    most, wanted = here.site.config.max_batch, sum(body.queues.values())
    if wanted > most:
        raise wrong("queues", f"they ask for {wanted:,} jobs at once, the limit is {most:,}")
    asked = Claim(
        token=_claim_id(body.claim_id),
        worker=body.worker,
        queues=tuple(body.queues.items()),
        lease=None if body.lease is None else length("lease", body.lease),
    )
    wait = min(length("wait", body.wait), MAX_WAIT)
    await worker_presence.show(here, body)
    rows = await _claimed(here, asked, wait, request)
    known = await worker_presence.turn_away(here, rows, frozenset(body.tasks))
    found = await here.client.store.checkpoints([row.id for row in known])
    return ClaimedList(
        claim_id=str(asked.token),
        jobs=[await _view(here, row, steps) for row, steps in zip(known, found, strict=True)],
    )


def _claim_id(text: str | None) -> UUID:
    if text is None:
        return uuid4()
    try:
        return UUID(text)
    except ValueError:
        raise wrong("claimId", f"{text!r:.80} is no UUID; make one for each call") from None


async def _claimed(here: Visit, asked: Claim, wait: float, request: Request) -> list[JobRow]:
    """Waits for: a job, for at most `wait` seconds, or until the caller or this server goes away.

    Guarantees: nothing is taken for a caller who is known to be gone, or whose key was revoked
    meanwhile. If that is found out later, the lease runs out, as it does for any worker that dies.
    Where there is no room to wait, what is there is taken all the same.
    """
    store, news = here.client.store, here.site.news
    clock = asyncio.get_running_loop().time
    end = clock() + wait
    heard = await news.cursor()
    rows = await store.claim(asked)
    if rows or wait <= 0:
        return rows
    with here.waiting() as ending:
        while (left := end - clock()) > 0:
            await _either(news.wait(heard, min(left, POLL)), ending.wait())
            if ending.is_set() or await request.is_disconnected():
                return []
            heard = await news.cursor()
            rows = await store.claim(asked)
            if rows:
                return rows
    return []


async def _either(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _view(here: Visit, row: JobRow, steps: Mapping[str, Checkpoint]) -> ClaimedView:
    until = time(row.lease_until)
    assert until is not None
    return ClaimedView(
        task_token=await token_for(
            here, row.lease, row.queue, lease_seconds(row), here.caller.key_id or ""
        ),
        lease_until=until,
        timeout=row.policy.timeout,
        checkpoints=_values(steps, here.app.codec),
        job=JobView.seen(row, here.app.codec),
    )


def _values(steps: Mapping[str, Checkpoint], codec: Codec) -> dict[str, Any]:
    return {step: opened(codec, kept.value, Purpose.CHECKPOINT)[0] for step, kept in steps.items()}


async def extend(here: Here, body: ExtendBatch) -> ExtendAnswers:
    """Lengthen leases. Each answer has a new token, and tells whether a cancel was asked for."""
    heard = await _heard(here, body.tasks)
    seconds = DEFAULT_LEASE if body.lease is None else length("lease", body.lease)
    check_lease(seconds)
    good = [one for one in heard if isinstance(one, TaskToken)]
    done = iter(await here.client.store.extend([one.lease for one in good], seconds))
    return ExtendAnswers(
        answers=[
            ExtendAnswer(**dict(one))
            if isinstance(one, WorkAnswer)
            else await _extended(here, one, next(done), seconds)
            for one in heard
        ]
    )


async def _extended(
    here: Visit, token: TaskToken, extended: Extended, seconds: float
) -> ExtendAnswer:
    if extended.stale:
        return ExtendAnswer(status=Status.STALE.value)
    return ExtendAnswer(
        status=Status.APPLIED.value,
        task_token=await token_for(here, token.lease, token.queue, seconds, token.holder),
        lease_until=time(extended.lease_until),
        cancel_requested=extended.cancel_requested,
    )


async def settle(here: Here, body: SettleBatch) -> WorkAnswers:
    """Say how attempts ended. To repeat it is harmless: it is answered as it was at first."""
    heard = await _heard(here, body.tasks)
    rows = await _rows(here, heard)
    reader = Reader(here)

    def read(given: SettleAsked, lease: Lease) -> Transition | WorkAnswer:
        row = rows.get(lease.job_id)
        if row is None:
            return WorkAnswer(status=Status.MISSING.value)
        return reader.settlement(given, row, lease)

    wishes = [_tried(read, *pair) for pair in zip(body.tasks, heard, strict=True)]
    done = iter(await here.client.store.apply([w for w in wishes if isinstance(w, Transition)]))
    return WorkAnswers(
        answers=[one if isinstance(one, WorkAnswer) else told(next(done)) for one in wishes]
    )


async def record(here: Here, body: SayBatch) -> WorkAnswers:
    """Store what attempts say: progress, log lines, artifacts, results of steps."""
    heard = await _heard(here, body.tasks)
    rows = await _rows(here, heard)
    reader = Reader(here)

    def read(given: SayAsked, lease: Lease) -> Saying | WorkAnswer:
        records = reader.records(given.records, rows.get(lease.job_id))
        check_records(records)
        return Saying(lease, records)

    sayings = [_tried(read, *pair) for pair in zip(body.tasks, heard, strict=True)]
    done = iter(await here.client.store.record([s for s in sayings if isinstance(s, Saying)]))
    return WorkAnswers(
        answers=[one if isinstance(one, WorkAnswer) else told(next(done)) for one in sayings]
    )


async def _heard(here: Visit, tasks: Sequence[Spoken]) -> list[TaskToken | WorkAnswer]:
    """For each, the token that it speaks with, or why it may not: no matter of the others."""
    most = here.site.config.max_batch
    if len(tasks) > most:
        raise wrong("tasks", f"there are {len(tasks):,} of them, the limit is {most:,}")
    found: list[TaskToken | WorkAnswer] = []
    for one in tasks:
        try:
            found.append(await token_of(here, one))
        except (WindlassError, Refusal) as error:
            found.append(refused(error))
    return found


async def _rows(here: Visit, heard: Sequence[TaskToken | WorkAnswer]) -> dict[UUID, JobRow]:
    ids = [one.lease.job_id for one in heard if isinstance(one, TaskToken)]
    found = await here.client.store.get(ids)
    return {row.id: row for row in found if row is not None}


def _tried(
    read: Callable[[S, Lease], R | WorkAnswer], given: S, heard: TaskToken | WorkAnswer
) -> R | WorkAnswer:
    if isinstance(heard, WorkAnswer):
        return heard
    try:
        return read(given, heard.lease)
    except WindlassError as error:
        return refused(error)
