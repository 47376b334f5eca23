"""A simulated month of schedules: eight tickers, restarts, lost answers, clocks that jump.

Jobs are run as soon as they are there, and deleted after a day: so a tick that is enqueued a second
time shows, for its job's id is free again by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import DEFAULT_QUEUE
from windlass.core.schedule import MARK, NAME_HEADER, TICK_HEADER, Schedule, iso, start_schedule
from windlass.core.versioned_record import Entry
from windlass.cron import ticks_of
from windlass.schedule_records import ScheduleRecords, make_schedule
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


class Frozen(FaultyStore):
    """On a bad line; and at times its process was frozen between a read of the marks and now."""

    frozen_for = 0.0
    chance: random.Random
    first: dict[str, Entry | None]

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        found = await super().get_records(kind, keys)
        if kind != MARK or self.chance.random() > 0.05:
            return found
        for key, entry in zip(keys, found, strict=True):
            self.first.setdefault(key, entry)
        self.frozen_for += 2 * module.MARK_MAX_AGE
        return [self.first[key] for key in keys]


class Month:
    """`outages`: no ticker runs for hours, so that ticks are missed."""

    def __init__(self, store: Store, clock: VirtualClock, seed: int, *, outages: bool) -> None:
        self._store = store
        self._clock = clock
        self._chance = random.Random(seed)
        self._outages = outages
        self.ran: Counter[tuple[str, str]] = Counter()
        self.restarts = 0
        self._handles = [store.twin() for _ in range(TICKERS)]
        self._tickers = [self._ticker(handle) for handle in self._handles]
        self._done: list[tuple[Instant, UUID]] = []

    def _ticker(self, handle: Store) -> Ticker:
        line = Frozen(
            handle, self._chance.random, lose=0.08, repeat=0.08, delay=True,
            raise_lost=True,
        )  # fmt: skip
        line.chance, line.first = self._chance, {}
        return Ticker(line, clock=lambda: line.frozen_for)

    async def live(self, planned: list[Schedule], until: Instant) -> None:
        table = ScheduleRecords(self._store)
        for one in planned:
            await table.add(one)
        begin = self._clock.now()
        calm = Ticker(self._store)
        while self._clock.now() < until:
            self._pass_time([start_schedule(one, begin) for one in planned])
            some = self._chance.sample(range(TICKERS), self._chance.randint(1, TICKERS))
            await asyncio.gather(*(self._tick(number) for number in some))
            if not self._outages:
                await settle(calm)  # within a minute, one ticker succeeds
            await self._run_off()
        await settle(calm)
        await self._run_off()
        for handle in self._handles:
            await handle.close()

    def _pass_time(self, planned: list[Schedule]) -> None:
        """To the next tick and a little further; or far; or back."""
        now = self._clock.now()
        luck = self._chance.random()
        if luck < 0.05:
            self._clock.advance(-self._chance.randint(1, HOURS))
        elif luck < 0.15 and self._outages:
            self._clock.advance(self._chance.randint(1, 20 * HOURS))
        else:
            upcoming = min(next(ticks_of(one)(now)) for one in planned)
            self._clock.jump(upcoming + self._chance.randrange(40 * SECOND))

    async def _tick(self, number: int) -> None:
        """As long as there is something to do, or until it dies; another comes in its place."""
        with contextlib.suppress(StoreUnavailableError):
            await settle(self._tickers[number])
        if self._chance.random() < 0.2:
            self._tickers[number] = self._ticker(self._handles[number])
            self.restarts += 1

    async def _run_off(self) -> None:
        """Run the jobs that are there, and delete those of the day before."""
        for row in await claim_all(self._store, DEFAULT_QUEUE):
            self.ran[row.headers[NAME_HEADER], row.headers[TICK_HEADER]] += 1
            await settle_one(self._store, row, Succeeded())
            self._done.append((self._clock.now(), row.id))
        yesterday = self._clock.now() - round(DAY) * SECOND
        await self._store.delete([job for at, job in self._done if at < yesterday])
        self._done = [(at, job) for at, job in self._done if at >= yesterday]


async def settle(ticker: Ticker) -> None:
    while await ticker.once() == 0:
        pass


def expected(planned: list[Schedule], begin: Instant, end: Instant) -> Counter[tuple[str, str]]:
    """Each tick of the time, once."""
    return Counter(
        (one.name, iso(tick))
        for one in planned
        for tick in takewhile(lambda tick: tick <= end, ticks_of(start_schedule(one, begin))(begin))
    )
