"""A tail returns all events in order, although commits are slow, out of order, or fail."""

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
from tests.stores.postgres.slow_commits import event_line, event_printer, slow_down_commits

from windlass.core.decisions.outcome import Failed, Succeeded, settle, succeed
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import Event
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import AttemptRecords
from windlass.stores.borrowed_connection import borrow
from windlass.stores.event_tail import tail
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.writes.apply_requests import record
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
WAIT_TIMEOUT = 60.0
WRITERS = 32
JOBS = 8
ROUNDS = 5
ROLLBACK_TASKS = 2
LOG_ROWS = "SELECT arrival, n, seq FROM windlass_log WHERE arrival > {} ORDER BY arrival"


async def repeat_until_committed(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it is not rolled back."""
    while True:
        try:
            return await call()
        except StoreUnavailableError:
            await asyncio.sleep(0.001)


class Jobs:
    """A few running jobs, to which many writers add records at once."""

    def __init__(self, url: str, store: PostgresStore) -> None:
        self.url = url
        self.store = store
        self.rows: list[JobRow] = []
        self.random = Random(5)
        self.record_counts: Counter[UUID] = Counter()

    async def start(self) -> None:
        policy = Policy(backoff=Fixed(seconds=0))
        new = [make_job(policy=policy) for _ in range(JOBS)]
        await repeat_until_committed(lambda: self.store.enqueue(new))
        await self._claim()

    async def start_next_attempts(self) -> None:
        """Fail every attempt, and claim the next one."""
        transitions = [
            settle(row, Failed(failure=make_failure()), random=no_jitter) for row in self.rows
        ]
        await repeat_until_committed(lambda: self.store.apply(transitions))
        self.rows, self.record_counts = [], Counter()
        await self._claim()

    async def _claim(self) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT):
            while len(self.rows) < JOBS:
                await repeat_until_committed(lambda: sweep_all(self.store))
                self.rows += await repeat_until_committed(lambda: claim_all(self.store, lease=600))

    async def write_records(self) -> None:
        """Run all writers at once, each on its own handle, while other settles are rolled back."""
        async with asyncio.TaskGroup() as group:
            rollbacks = [
                group.create_task(self._roll_back_settles()) for _ in range(ROLLBACK_TASKS)
            ]
            writers = [group.create_task(self._write(number)) for number in range(WRITERS)]
            await asyncio.wait(writers)
            for task in rollbacks:
                task.cancel()

    async def _write(self, number: int) -> None:
        """Write records of two jobs in each transaction; the pairs differ."""
        async with PostgresStore(f"{self.url}&pool=1") as store:
            for round_ in range(ROUNDS):
                first, distance = number + round_, 1 + round_ % (JOBS - 1)
                pair = [self.rows[which % JOBS] for which in (first, first + distance)]
                await repeat_until_committed(partial(self._write_pair, store, pair))

    async def _write_pair(self, store: PostgresStore, rows: list[JobRow]) -> None:
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

    async def _roll_back_settles(self) -> None:
        """Repeatedly settle a job in a transaction that is rolled back later; its writers wait."""
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
        """Settle half of the jobs in transactions that commit late, and half by the store."""
        async with connected(self.url) as connection:
            for row in self.rows[::2]:
                async with connection.transaction():
                    await self._succeed_within(connection, row)
                    await asyncio.sleep(0.02)
        transitions = [settle(row, Succeeded(), random=no_jitter) for row in self.rows[1::2]]
        await repeat_until_committed(lambda: self.store.apply(transitions))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


async def collect(events: AsyncIterable[Event]) -> list[Event]:
    return [event async for event in events]


def has_no_gaps(events: list[Event]) -> bool:
    return [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.slow
async def test_every_tail_returns_exactly_the_log(new_database: str) -> None:
    """Tails with notifications, with polling, from a later event, and in another process."""
    await migrate(new_database)
    await slow_down_commits(new_database)
    async with (
        PostgresStore(new_database) as store,
        PostgresStore(new_database) as reader_store,
        PostgresStore(new_database) as polling_store,
    ):
        jobs = Jobs(new_database, store)
        await jobs.start()
        ids = [row.id for row in jobs.rows]
        async with event_printer(new_database, ids) as printer, asyncio.timeout(WAIT_TIMEOUT):
            readers = [asyncio.create_task(collect(reader_store.tail(job))) for job in ids]
            polling = [tail(polling_store, JobWakeups(), job, 0, poll=0.01) for job in ids]
            readers += [asyncio.create_task(collect(events)) for events in polling]
            await jobs.write_records()
            late = [asyncio.create_task(collect(reader_store.tail(job, after=7))) for job in ids]
            await jobs.start_next_attempts()
            await jobs.write_records()
            await jobs.end()
            logs = [await read_events(store, job) for job in ids]
            received = await asyncio.gather(*readers)
            late_events = await asyncio.gather(*late)
            printed = (await printer).decode().splitlines()

        assert all(has_no_gaps(log) and len(log) > 2 * ROUNDS for log in logs)
        assert received == logs + logs
        assert late_events == [log[7:] for log in logs]
        by_job = {
            UUID(job): list(job_lines)
            for job, job_lines in groupby(
                sorted(printed), key=lambda printed: printed.split(" ")[0]
            )
        }
        assert by_job == {log[0].job_id: sorted(map(event_line, log)) for log in logs}
        assert len(printed) == len(set(printed))
        assert {row.state for row in await store.get(ids) if row} == {State.SUCCEEDED}


async def test_events_numbered_early_and_committed_late_are_returned(postgres_url: str) -> None:
    """The process has already read a later event of another job, which committed first."""
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as reader_store:
        await store.enqueue([make_job(), make_job()])
        late_job, early_job = await claim_all(store)
        async with connected(postgres_url) as connection, asyncio.timeout(WAIT_TIMEOUT):
            transaction = connection.transaction()
            await transaction.start()
            await record(
                connection, [AttemptRecords(late_job.lease, [log_record(1, "early")])], None, 0
            )
            await store.record([AttemptRecords(early_job.lease, [log_record(1, "late")])])
            assert (await anext(reader_store.tail(early_job.id, after=3))).body == b"late"
            await transaction.commit()
            await store.apply([settle(late_job, Succeeded(), random=no_jitter)])
            received = await collect(reader_store.tail(late_job.id))

        assert received == await read_events(store, late_job.id)
        assert [event.seq for event in received] == [1, 2, 3, 4, 5]


@pytest.mark.slow
async def test_the_same_writers_break_a_reader_by_sequence(new_database: str) -> None:
    """Proves that the writers of this file reveal a reader that skips late commits."""
    await migrate(new_database)
    await slow_down_commits(new_database)
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
        await jobs.start()
        reader = asyncio.create_task(read())
        await jobs.write_records()
        await asyncio.sleep(0.1)
        reader.cancel()
        await asyncio.wait([reader])
        await jobs.end()
    stored = {(n, seq) for _, n, seq in await execute(new_database, LOG_ROWS.format(0))}
    assert seen < stored
