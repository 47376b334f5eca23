"""Live events have no gaps, however long commits take, in whatever order they come, or fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import pytest
from tests.stores.postgres.server import execute, migrate
from tests.stores.postgres.slow_commits import event_line, following, make_restless

from windlass.core.decisions.outcome import Failed, Succeeded, settle, succeed
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import Event
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import AttemptRecords
from windlass.stores.borrowed_connection import borrow
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.writes.jobs import record
from windlass.stores.tail import tail
from windlass.stores.wakeup import JobWakeups
from windlass.testing.factories import (
    claim_all,
    log_record,
    make_failure,
    make_job,
    no_jitter,
    read_events,
    sweep_all,
)

T = TypeVar("T")
PATIENCE = 60.0
WRITERS = 32
JOBS = 8
ROUNDS = 5
WAVERERS = 2
LOG_ROWS = "SELECT arrival, n, seq FROM windlass_log WHERE arrival > {} ORDER BY arrival"


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats what was rolled back."""
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            await asyncio.sleep(0.001)


class Jobs:
    """A few running jobs, about which many speak at once."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self.url = url
        self.store = store
        self.rows: list[JobRow] = []
        self.random = Random(5)
        self.record_counts: Counter[UUID] = Counter()

    async def begin(self) -> None:
        policy = Policy(backoff=Fixed(seconds=0))
        new = [make_job(policy=policy) for _ in range(JOBS)]
        await insist(lambda: self.store.enqueue(new))
        await self._claim()

    async def begin_again(self) -> None:
        """Every attempt fails, and the next one runs."""
        transitions = [
            settle(row, Failed(failure=make_failure()), random=no_jitter) for row in self.rows
        ]
        await insist(lambda: self.store.apply(transitions))
        self.rows, self.record_counts = [], Counter()
        await self._claim()

    async def _claim(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.rows) < JOBS:
                await insist(lambda: sweep_all(self.store))
                self.rows += await insist(lambda: claim_all(self.store, lease=600))

    async def speak(self) -> None:
        """All writers at once, each on a handle of its own; some others waver meanwhile."""
        async with asyncio.TaskGroup() as group:
            wavering = [group.create_task(self._waver()) for _ in range(WAVERERS)]
            writing = [group.create_task(self._write(number)) for number in range(WRITERS)]
            await asyncio.wait(writing)
            for task in wavering:
                task.cancel()

    async def _write(self, number: int) -> None:
        """About two jobs in one transaction, others each time."""
        async with PostgresStore(f"{self.url}&pool=1") as store:
            for round_ in range(ROUNDS):
                first, apart = number + round_, 1 + round_ % (JOBS - 1)
                both = [self.rows[which % JOBS] for which in (first, first + apart)]
                await insist(partial(self._say, store, both))

    async def _say(self, store: PostgresStore, rows: list[JobRow]) -> None:
        attempt_records = []
        for row in rows:
            self.record_counts[row.id] += 1
            attempt_records.append(
                AttemptRecords(
                    row.lease,
                    [log_record(self.record_counts[row.id], f"{self.record_counts[row.id]}")],
                )
            )
        await store.record(attempt_records)

    async def _waver(self) -> None:
        """End a job in a transaction that is held open, and rolled back: its writers wait."""
        async with connected(self.url) as connection:
            while True:
                transaction = connection.transaction()
                await transaction.start()
                await self._succeed_within(connection, self.random.choice(self.rows))
                await asyncio.sleep(self.random.uniform(0, 0.03))
                await transaction.rollback()

    async def _succeed_within(self, connection: Any, row: JobRow) -> None:
        await borrow(connection).acall(*self.store.settlement(succeed(row, Succeeded())))

    async def end(self) -> None:
        """Half of them in a transaction that is held open for a while, half as usual."""
        async with connected(self.url) as connection:
            for row in self.rows[::2]:
                async with connection.transaction():
                    await self._succeed_within(connection, row)
                    await asyncio.sleep(0.02)
        transitions = [settle(row, Succeeded(), random=no_jitter) for row in self.rows[1::2]]
        await insist(lambda: self.store.apply(transitions))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


async def transcript(events: AsyncIterable[Event]) -> list[Event]:
    return [event async for event in events]


def whole(events: list[Event]) -> bool:
    return [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.slow
async def test_every_follower_reads_exactly_the_log(new_database: str) -> None:
    """By hints, by polling, from the middle, and in another process."""
    await migrate(new_database)
    await make_restless(new_database)
    async with (
        PostgresStore(new_database) as store,
        PostgresStore(new_database) as near,
        PostgresStore(new_database) as unresponsive,
    ):
        jobs = Jobs(new_database, store)
        await jobs.begin()
        ids = [row.id for row in jobs.rows]
        async with following(new_database, ids) as apart, asyncio.timeout(PATIENCE):
            readers = [asyncio.create_task(transcript(near.tail(job))) for job in ids]
            polling = [tail(unresponsive, JobWakeups(), job, 0, poll=0.01) for job in ids]
            readers += [asyncio.create_task(transcript(events)) for events in polling]
            await jobs.speak()
            late = [asyncio.create_task(transcript(near.tail(job, after=7))) for job in ids]
            await jobs.begin_again()
            await jobs.speak()
            await jobs.end()
            logs = [await read_events(store, job) for job in ids]
            received = await asyncio.gather(*readers)
            joined = await asyncio.gather(*late)
            printed = (await apart).decode().splitlines()

        assert all(whole(log) and len(log) > 2 * ROUNDS for log in logs)
        assert received == logs + logs
        assert joined == [log[7:] for log in logs]
        by_job = {
            UUID(job): list(rows_)
            for job, rows_ in groupby(sorted(printed), key=lambda printed: printed.split(" ")[0])
        }
        assert by_job == {log[0].job_id: sorted(map(event_line, log)) for log in logs}
        assert len(printed) == len(set(printed))
        assert {row.state for row in await store.get(ids) if row} == {State.SUCCEEDED}


async def test_events_numbered_early_and_committed_late_are_returned(postgres_url: str) -> None:
    """Another job's event, which was committed later, was already seen by the same process."""
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as near:
        await store.enqueue([make_job(), make_job()])
        slow, quick = await claim_all(store)
        async with connected(postgres_url) as connection, asyncio.timeout(PATIENCE):
            transaction = connection.transaction()
            await transaction.start()
            await record(
                connection, [AttemptRecords(slow.lease, [log_record(1, "early")])], None, 0
            )
            await store.record([AttemptRecords(quick.lease, [log_record(1, "late")])])
            assert (await anext(near.tail(quick.id, after=3))).body == b"late"
            await transaction.commit()
            await store.apply([settle(slow, Succeeded(), random=no_jitter)])
            received = await transcript(near.tail(slow.id))

        assert received == await read_events(store, slow.id)
        assert [event.seq for event in received] == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_the_same_writers_break_a_reader_that_uses_a_sequence(new_database: str) -> None:
    """So they are rough enough: a number that is given before the commit is no cursor."""
    await migrate(new_database)
    await make_restless(new_database)
    seen: set[tuple[int, int]] = set()

    async def read() -> None:
        last = 0
        async with connected(new_database) as connection:
            while True:
                for arrival, n, seq in await connection.fetch(LOG_ROWS.format(last)):
                    seen.add((n, seq))
                    last = arrival
                await asyncio.sleep(0.001)

    async with PostgresStore(new_database) as store:
        jobs = Jobs(new_database, store)
        await jobs.begin()
        reader = asyncio.create_task(read())
        await jobs.speak()
        await asyncio.sleep(0.1)
        reader.cancel()
        await asyncio.wait([reader])
        await jobs.end()
    there = {(n, seq) for _, n, seq in await execute(new_database, LOG_ROWS.format(0))}
    assert seen < there
