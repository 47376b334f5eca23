"""Simulation of a month of schedules: eight tickers, restarts, lost responses, clock changes.

Jobs run as soon as they are queued, and are deleted after a day. Then their ids are free again, so
that a tick that is enqueued twice runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from random import Random
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import DEFAULT_QUEUE
from windlass.core.schedule import MARK, NAME_HEADER, TICK_HEADER, Schedule, iso, start_schedule
from windlass.core.versioned_record import Entry
from windlass.cron import ticks_of
from windlass.records.schedule_records import ScheduleRecords, make_schedule
from windlass.store import DAY, Store
from windlass.testing import FaultyStore, VirtualClock, claim_all, make_job
from windlass.testing.factories import settle_one
from windlass.worker.loops import ticker as module
from windlass.worker.loops.ticker import Ticker

TICKERS = 8
HOURS = 3600


def schedules(missed: str) -> list[Schedule]:
    job = make_job(task="report")
    return [
        make_schedule("berlin", job, cron="30 2 * * *", tz="Europe/Berlin", missed=missed),
        make_schedule(
            "berlin-often", job, cron="*/40 1-4 * * *", tz="Europe/Berlin", missed=missed
        ),
        make_schedule("new-york", job, cron="*/30 0-2 * * *", tz="America/New_York", missed=missed),
        make_schedule(
            "new-york-early", job, cron="30 1,2 * * *", tz="America/New_York", missed=missed
        ),
        make_schedule("seven-hours", job, every="7h", missed=missed),
    ]


class FrozenProcess(FaultyStore):
    """An unreliable store; at times its process freezes between a read of the marks and its use."""

    frozen_for = 0.0
    random: Random
    first_marks: dict[str, Entry | None]

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        found = await super().get_records(kind, keys)
        if kind != MARK or self.random.random() > 0.05:
            return found
        for key, entry in zip(keys, found, strict=True):
            self.first_marks.setdefault(key, entry)
        self.frozen_for += 2 * module.MARK_MAX_AGE
        return [self.first_marks[key] for key in keys]


class Month:
    """`outages`: no ticker runs for hours, so that ticks are missed."""

    def __init__(self, store: Store, clock: VirtualClock, seed: int, *, outages: bool) -> None:
        self._store = store
        self._clock = clock
        self._random = Random(seed)
        self._outages = outages
        self.ran: Counter[tuple[str, str]] = Counter()
        self.restarts = 0
        self._handles = [store.twin() for _ in range(TICKERS)]
        self._tickers = [self._ticker(handle) for handle in self._handles]
        self._finished: list[tuple[Instant, UUID]] = []

    def _ticker(self, handle: Store) -> Ticker:
        store = FrozenProcess(
            handle, self._random.random, lose=0.08, repeat=0.08, delay=True,
            raise_lost=True,
        )  # fmt: skip
        store.random, store.first_marks = self._random, {}
        return Ticker(store, clock=lambda: store.frozen_for)

    async def run(self, planned: list[Schedule], until: Instant) -> None:
        records = ScheduleRecords(self._store)
        for schedule in planned:
            await records.add(schedule)
        start = self._clock.now()
        reliable_ticker = Ticker(self._store)
        while self._clock.now() < until:
            self._advance_clock([start_schedule(schedule, start) for schedule in planned])
            active = self._random.sample(range(TICKERS), self._random.randint(1, TICKERS))
            await asyncio.gather(*(self._tick(number) for number in active))
            if not self._outages:
                await settle(reliable_ticker)  # within a minute, one ticker succeeds
            await self._run_jobs()
        await settle(reliable_ticker)
        await self._run_jobs()
        for handle in self._handles:
            await handle.close()

    def _advance_clock(self, planned: list[Schedule]) -> None:
        """Advance to just after the next tick, or by hours, or set the clock back."""
        now = self._clock.now()
        choice = self._random.random()
        if choice < 0.05:
            self._clock.advance(-self._random.randint(1, HOURS))
        elif choice < 0.15 and self._outages:
            self._clock.advance(self._random.randint(1, 20 * HOURS))
        else:
            upcoming = min(next(ticks_of(schedule)(now)) for schedule in planned)
            self._clock.jump(upcoming + self._random.randrange(40 * SECOND))

    async def _tick(self, number: int) -> None:
        """Run one ticker until nothing is due or its store fails; sometimes replace it."""
        with contextlib.suppress(StoreUnavailableError):
            await settle(self._tickers[number])
        if self._random.random() < 0.2:
            self._tickers[number] = self._ticker(self._handles[number])
            self.restarts += 1

    async def _run_jobs(self) -> None:
        """Run all queued jobs, and delete those of the day before."""
        for row in await claim_all(self._store, DEFAULT_QUEUE):
            self.ran[row.headers[NAME_HEADER], row.headers[TICK_HEADER]] += 1
            await settle_one(self._store, row, Succeeded())
            self._finished.append((self._clock.now(), row.id))
        yesterday = self._clock.now() - round(DAY) * SECOND
        await self._store.delete([job for at, job in self._finished if at < yesterday])
        self._finished = [(at, job) for at, job in self._finished if at >= yesterday]


async def settle(ticker: Ticker) -> None:
    while await ticker.once() == 0:
        pass


def expected(planned: list[Schedule], start: Instant, end: Instant) -> Counter[tuple[str, str]]:
    """Return each tick of the period, once."""
    return Counter(
        (schedule.name, iso(tick))
        for schedule in planned
        for tick in takewhile(
            lambda tick: tick <= end, ticks_of(start_schedule(schedule, start))(start)
        )
    )
