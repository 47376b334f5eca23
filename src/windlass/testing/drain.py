"""Running off what a test enqueued, with workers of the app itself.

Waits for: news of the store, while a job can be claimed or runs. Guarantees: time stands still
unless it may pass, and then moves from one due instant to the next, never under the feet of a
running attempt. Stops: when nothing is left that could run. A worker that crashed is buried, and
its leases are left to run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from windlass.app import Windlass
from windlass.core.clock import Instant
from windlass.core.decisions.outcome import sweep
from windlass.core.errors import ConflictError
from windlass.core.ids import uuid7
from windlass.core.job.lease import DEFAULT_LEASE
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, State
from windlass.core.query.job_query import MAX_PAGE, Query
from windlass.store import Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import even
from windlass.testing.store_spy import Bench, BenchStore, Life, at_once
from windlass.worker import Worker, WorkerConfig

MOST_ATTEMPTS = 10_000
_FOR_GOOD = Retention(succeeded=0, canceled=0, failed=0, log=0, rollups=0)
_LONG = 86_400.0
_LAST_BREATH = 0.05  # seconds that a dead worker waits for settles that cannot come
_PATIENCE = 20.0
_LOOK = 1.0  # seconds after which to look again, whatever the news
_WAITING = frozenset({State.CREATED, State.RETRYING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How to run things off. The jobs of `wanted` must end, whichever worker has them."""

    through_time: bool
    concurrency: int = 1
    wanted: Collection[UUID] = ()


class Drainer:
    """`store` is the memory store itself: no crash and no inline mode stands before it."""

    def __init__(self, app: Windlass, store: Store, bench: Bench, clock: VirtualClock) -> None:
        self._app = app
        self._store = store
        self._bench = bench
        self._clock = clock

    def rows(self, *states: State) -> list[JobRow]:
        """All jobs, or those in one of these states, oldest first."""
        query = Query(states=frozenset(states), limit=MAX_PAGE)
        found: list[JobRow] = []
        cursor: str | None = None
        while True:
            page = at_once(self._store.find(replace(query, cursor=cursor)))
            found += page.rows
            if (cursor := page.cursor) is None:
                return found[::-1]

    async def run(self, how: Drain) -> None:
        here = self._app.client().store
        if not (isinstance(here, BenchStore) and here.bench is self._bench):
            raise ConflictError(
                "the app is not on this twin's store: "
                "its block has ended, or another twin stands in"
            )
        most = self._bench.claimed + MOST_ATTEMPTS
        while True:
            seen = self._bench.news.count
            if not self._more(None, how):
                return
            if self._claimable():
                if await self._work(how, most) or how.through_time:
                    continue
                return  # the worker died; its leases run out when time passes
            # It runs elsewhere: in a worker whose task enqueued what we are here for.
            await self._bench.news.wait(seen, _LOOK)

    # -- one worker

    async def _work(self, how: Drain, most: int) -> bool:
        """Whether it lived to the end of its work."""
        bench = self._bench
        life = Life(f"drain-{uuid7().hex[-8:]}", bench.doom)
        queues = {spec.options.queue for spec in self._app.tasks} | self._claimable()
        worker = self._worker(life, dict.fromkeys(sorted(queues), how.concurrency))
        with bench.living(life):
            running = asyncio.create_task(worker.run())
            try:
                while not (life.dead or running.done()):
                    seen = bench.news.count
                    self._check(most)
                    if not self._more(life, how) or not self._claimable() <= queues:
                        break
                    await self._news(seen, running)
                worker.stop()
            except BaseException:
                running.cancel()
                raise
            finally:
                while not (life.dead or running.done()):
                    await self._news(bench.news.count, running)
                if life.dead:
                    await _bury(running)
        if not life.dead:
            running.result()  # a lifespan that failed says so
        return not life.dead

    def _worker(self, life: Life, queues: dict[str, int]) -> Worker:
        config = WorkerConfig(
            queues=queues,
            name=life.name,
            sweep=_LONG,  # time does not pass by itself here
            retention=_FOR_GOOD,
            company=False,  # what is there is all that will come
            isolate=False,  # nobody really died, and another process has nothing of the test
            schedules=False,  # a test says when they tick
        )
        if life.doom is not None:
            config = replace(config, release=_LAST_BREATH)
        with self._bench.bearing(life):
            return self._app.worker(config)

    async def _news(self, seen: int, running: asyncio.Task[Any]) -> None:
        news = asyncio.ensure_future(self._bench.news.wait(seen, _LOOK))
        try:
            await asyncio.wait({news, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    def _check(self, most: int) -> None:
        if self._bench.claimed > most:
            names = sorted({row.task for row in self.rows(*ACTIVE)})
            raise AssertionError(
                f"{MOST_ATTEMPTS:,} attempts, and there is no end to them; still at it: "
                f"{', '.join(names)}. Does a task enqueue itself, or snooze, for ever?"
            )

    # -- what is left, and time

    def _more(self, life: Life | None, how: Drain) -> bool:
        """Whether there is something to wait for. Promotes what is due, moves time if it may."""
        while not self._held(life):
            moved = self._sweep()
            if self._claimable() or self._elsewhere(how.wanted):
                return True
            if not (moved or (how.through_time and self._move())):
                return False
        return True

    def _held(self, life: Life | None) -> bool:
        """Whether this worker has a job to settle."""
        leases = list(life.held) if life is not None else []
        rows = at_once(self._store.get([lease.job_id for lease in leases]))
        return any(
            row is not None and row.state is State.RUNNING and row.lease == lease
            for row, lease in zip(rows, leases, strict=True)
        )

    def _elsewhere(self, wanted: Collection[UUID]) -> bool:
        """Whether a job that must end runs in another worker of ours."""
        rows = at_once(self._store.get(list(wanted)))
        alive = self._bench.alive
        return any(r is not None and r.state is State.RUNNING and r.worker in alive for r in rows)

    def _claimable(self) -> set[str]:
        """The queues in which a job can be claimed; what is too late was swept away before."""
        stats = at_once(self._store.stats())
        return {
            queue
            for queue, found in stats.items()
            if found.counts.get(State.QUEUED) and not found.paused
        }

    def _sweep(self) -> bool:
        """What maintenance does now; whether it moved anything."""
        self._renew()
        rows = at_once(self._store.due(MAX_PAGE)) + at_once(self._store.expired(MAX_PAGE))
        answers = at_once(self._store.apply([sweep(row, random=even) for row in rows]))
        return any(answer.applied for answer in answers)

    def _renew(self) -> None:
        """Whatever the clock did, the living keep their leases: their keepers go by another."""
        lives = list(self._bench.alive.values())  # some may be on another thread
        leases = [lease for life in lives if not life.dead for lease in list(life.held)]
        at_once(self._store.extend(leases, DEFAULT_LEASE))

    def _move(self) -> bool:
        """Until the next job is due, a rate lets one in, or the next lease of the dead runs out."""
        stats = at_once(self._store.stats())
        paused = {queue for queue, found in stats.items() if found.paused}
        rows = [row for row in self.rows(*ACTIVE) if row.queue not in paused]
        ends = [_ends(row, self._bench.alive) for row in rows]
        gates = sorted({row.gate for row in rows if row.gate is not None})
        ends += [gate.look_at for gate in at_once(self._store.gates(gates))]
        instant = min((end for end in ends if end is not None), default=None)
        if instant is None or instant <= self._clock.now():
            return False
        self._clock.jump(instant)
        return True


def _ends(row: JobRow, alive: Container[str]) -> Instant | None:
    """When a job's waiting ends by itself, or the lease of the dead worker that had it."""
    if row.state is State.RUNNING:
        return None if row.worker in alive else row.lease_until
    return row.due_at if row.state in _WAITING and not (row.held or row.waiting_for) else None


async def _bury(running: asyncio.Task[None]) -> None:
    """Let a dead worker unwind: none of its writes reach the store any more."""
    running.cancel()
    await asyncio.wait({running}, timeout=_PATIENCE)
    if not running.done():
        raise AssertionError(f"the worker died, but after {_PATIENCE:g} s it has not come to rest")
    if not running.cancelled():
        running.exception()  # it died of it, and nobody else needs to hear
