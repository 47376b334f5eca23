"""Queues: depth and rates, draining, clearing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.core.clock import MINUTE, SECOND, Instant, minute_of
from windlass.core.decisions.transition import Transition
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import WAITING, State, Trigger
from windlass.core.query.job_query import MAX_PAGE, Query
from windlass.core.query.queue_rates import DRAIN_STATES, DrainProgress, Rates, drain_eta, rates
from windlass.core.sizes import check_text
from windlass.store import QueueStats, Store

WINDOW = 5  # whole minutes, plus the current one
FIRST_POLL, MAX_POLL = 0.05, 1.0  # seconds between two polls
ETA_SAMPLES = 30  # polls that the estimate uses


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue. `counts` are by state; those of states in `capped` are lower bounds."""

    name: str
    counts: Mapping[State, int] = field(default_factory=dict)
    capped: frozenset[State] = frozenset()
    paused: bool = False
    oldest_queued_at: Instant | None = None
    oldest_age: float | None = None  # seconds since the oldest queued job was queued
    rates: Rates


async def queue_overview(store: Store) -> list[Queue]:
    """List queues by name: with unfinished jobs, paused, or with recently ended jobs."""
    now = await store.ping()
    since = minute_of(now) - WINDOW * MINUTE
    minutes = (now - since) / MINUTE
    stats = await store.stats()
    rollups = await store.rollups(since, now + MINUTE)
    names = sorted({*stats, *(rollup.queue for rollup in rollups)})
    return [
        _queue(
            name,
            stats.get(name, QueueStats()),
            rates([rollup for rollup in rollups if rollup.queue == name], minutes),
            now,
        )
        for name in names
    ]


def _queue(name: str, stats: QueueStats, queue_rates: Rates, now: Instant) -> Queue:
    oldest = stats.oldest_queued_at
    return Queue(
        name=name,
        counts=stats.counts,
        capped=stats.capped,
        paused=stats.paused,
        oldest_queued_at=oldest,
        oldest_age=None if oldest is None else max(0, now - oldest) / SECOND,
        rates=queue_rates,
    )


async def watch_drain(store: Store, names: Sequence[str]) -> AsyncIterator[DrainProgress]:
    """Poll these queues until they are empty; the last progress has `left == 0`.

    Only waits for the workers, and changes nothing. Includes jobs that are enqueued meanwhile.
    Held and scheduled jobs are not in their queue yet, and are not waited for.
    """
    for name in names:
        check_text("a queue name", name)
    if not names:
        raise InvalidArgumentError("name at least one queue to drain")
    clock = asyncio.get_running_loop().time
    start, pause, peak = clock(), FIRST_POLL, 0
    samples: deque[tuple[float, int]] = deque(maxlen=ETA_SAMPLES)
    while True:
        progress = _progress(await store.stats(), names)
        peak = max(peak, progress.left)
        samples.append((clock() - start, progress.left))
        eta = None if progress.capped else drain_eta(samples)
        yield replace(progress, peak=peak, seconds=clock() - start, eta=eta)
        if not progress.left:
            return
        await asyncio.sleep(pause)
        pause = min(MAX_POLL, 2 * pause)


def _progress(stats: Mapping[str, QueueStats], names: Sequence[str]) -> DrainProgress:
    found = [stats[name] for name in names if name in stats]
    left = sum(one.counts.get(state, 0) for one in found for state in DRAIN_STATES)
    return DrainProgress(
        left=left,
        peak=left,
        running=sum(one.counts.get(State.RUNNING, 0) for one in found),
        not_queued=sum(one.counts.get(State.CREATED, 0) for one in found),
        capped=any(one.capped & DRAIN_STATES for one in found),
        paused=tuple(name for name in names if name in stats and stats[name].paused),
    )


async def cancel_waiting(store: Store, name: str, reason: str | None = None) -> int:
    """Cancel all jobs that wait in the queue at the time of the call; return their number.

    A job that starts meanwhile continues to run.
    """
    canceled = 0
    cursor: str | None = None
    query = Query(states=WAITING, queues=frozenset({name}), limit=MAX_PAGE)
    while True:
        page = await store.find(replace(query, cursor=cursor))
        transitions = [
            Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CANCEL, reason=reason)
            for row in page.rows
        ]
        canceled += sum(result.applied for result in await store.apply(transitions))
        if (cursor := page.cursor) is None:
            return canceled
