"""Queues as a whole: how much is in each and how quickly it goes, emptying them, clearing them."""

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
from windlass.core.query.queue_rates import IN_LINE, Drain, Rates, rates, time_to_go
from windlass.core.sizes import check_text
from windlass.store import QueueStats, Store

WINDOW = 5  # whole minutes, and the one that has begun
FIRST_LOOK, LOOK = 0.05, 1.0  # seconds
LOOKS = 30  # by which the pace is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue. `counts` are by state; those named in `capped` are lower bounds."""

    name: str
    counts: Mapping[State, int] = field(default_factory=dict)
    capped: frozenset[State] = frozenset()
    paused: bool = False
    oldest_queued_at: Instant | None = None
    oldest_age: float | None = None  # seconds that the longest waiting job has been in line
    rates: Rates


async def queues(store: Store) -> list[Queue]:
    """Those that have jobs to do, are paused, or ended something in the last minutes; by name."""
    now = await store.ping()
    since = minute_of(now) - WINDOW * MINUTE
    minutes = (now - since) / MINUTE
    stats = await store.stats()
    lines = await store.rollups(since, now + MINUTE)
    names = sorted({*stats, *(line.queue for line in lines)})
    return [
        _queue(
            name,
            stats.get(name, QueueStats()),
            rates([line for line in lines if line.queue == name], minutes),
            now,
        )
        for name in names
    ]


def _queue(name: str, stats: QueueStats, pace: Rates, now: Instant) -> Queue:
    oldest = stats.oldest_queued_at
    return Queue(
        name=name,
        counts=stats.counts,
        capped=stats.capped,
        paused=stats.paused,
        oldest_queued_at=oldest,
        oldest_age=None if oldest is None else max(0, now - oldest) / SECOND,
        rates=pace,
    )


async def drain(store: Store, names: Sequence[str]) -> AsyncIterator[Drain]:
    """Look again and again until nothing is left in these queues; the last look says so.

    Waits for: workers to run what is queued, running or retrying, also what comes meanwhile. It
    changes nothing. What is held, or for later, has not come into its queue, and is not waited for.
    """
    for name in names:
        check_text("a queue's name", name)
    if not names:
        raise InvalidArgumentError("no queue is named to be drained")
    clock = asyncio.get_running_loop().time
    began, pause, most = clock(), FIRST_LOOK, 0
    looks: deque[tuple[float, int]] = deque(maxlen=LOOKS)
    while True:
        look = _look(await store.stats(), names)
        most = max(most, look.left)
        looks.append((clock() - began, look.left))
        eta = None if look.capped else time_to_go(looks)
        yield replace(look, most=most, seconds=clock() - began, eta=eta)
        if not look.left:
            return
        await asyncio.sleep(pause)
        pause = min(LOOK, 2 * pause)


def _look(stats: Mapping[str, QueueStats], names: Sequence[str]) -> Drain:
    found = [stats[name] for name in names if name in stats]
    left = sum(one.counts.get(state, 0) for one in found for state in IN_LINE)
    return Drain(
        left=left,
        most=left,
        running=sum(one.counts.get(State.RUNNING, 0) for one in found),
        later=sum(one.counts.get(State.CREATED, 0) for one in found),
        capped=any(one.capped & IN_LINE for one in found),
        paused=tuple(name for name in names if name in stats and stats[name].paused),
    )


async def clear(store: Store, name: str, reason: str | None = None) -> int:
    """Cancel all jobs that wait in the queue when this begins; answers how many were canceled.

    What has started by then runs on, also if it was seen waiting.
    """
    canceled = 0
    cursor: str | None = None
    query = Query(states=WAITING, queues=frozenset({name}), limit=MAX_PAGE)
    while True:
        page = await store.find(replace(query, cursor=cursor))
        wishes = [
            Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CANCEL, reason=reason)
            for row in page.rows
        ]
        canceled += sum(answer.applied for answer in await store.apply(wishes))
        if (cursor := page.cursor) is None:
            return canceled
