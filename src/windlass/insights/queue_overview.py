"""Overview of all queues: depth, age, rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.clock import MINUTE, SECOND, Instant, minute_of
from windlass.core.job.state import State
from windlass.core.query.queue_rates import Rates, rates
from windlass.store import QueueStats, Store

WINDOW = 5  # whole minutes, plus the current one


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
    stats = await store.insights.stats()
    rollups = await store.insights.rollups(since, now + MINUTE)
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
