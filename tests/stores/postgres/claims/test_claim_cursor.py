"""Claims skip dead rows at the head of a queue, and keep the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.postgres.server import execute

from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow, new_row
from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.stores.postgres.writes import claim_cursor
from windlass.stores.postgres.writes.claim_cursor import ClaimCursor
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.claim import TestClaim
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.jobs.order import TestOrder
from windlass.testing.factories import claim_all, make_job

__all__ = ["TestClaim", "TestOrder", "clock", "store"]

SAMPLE = ()  # `make test-all` runs these


@pytest.fixture(autouse=True)
def many_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every handle sees many dead rows, and slow scans."""
    monkeypatch.setattr(claim_cursor, "MANY_DEAD_ROWS", -1)
    monkeypatch.setattr(claim_cursor, "SLOW_SCAN", -1.0)


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str) -> OpenStore:
    async def open_handle() -> Store:
        return PostgresStore(postgres_url, clock=clock)

    return open_handle


class _Connection:
    """Connection double: reports one dead row, and the first positions that the test sets."""

    def __init__(self, now: list[float], cost: float = 0.01) -> None:
        self.now, self.cost = now, cost
        self.heads: list[tuple[str, int, int]] = []

    async def fetchval(self, *_: object) -> int:
        return 1

    async def fetch(
        self, _: str, __: None, queues: Sequence[str], ___: Sequence[int], *, timeout: float
    ) -> list[tuple[str, int, int]]:
        assert queues
        self.now[0] += self.cost
        return self.heads


class CursorSetup:
    """A cursor after a slow head check, with a clock that the test sets."""

    def __init__(self, cost: float = 0.01) -> None:
        self.now = [0.0]
        self.connection: Any = _Connection(self.now, cost)
        self.cursor = ClaimCursor(lambda: self.now[0])

    async def start(self, *taken: tuple[int, int]) -> ClaimCursor:
        await self.cursor.refresh(self.connection)
        self.cursor.record_claim([_row(*position) for position in taken])
        await self.check_head()
        return self.cursor

    async def check_head(self, *heads: tuple[int, int]) -> bool:
        self.connection.heads = [("q", *head) for head in heads]
        return await self.cursor.check_head(self.connection, None)

    def claim(self, *positions: int) -> None:
        self.cursor.record_claim([_row(0, position) for position in positions])

    def reads(self, priority: int, position: int) -> int:
        """Return how many ranges of the next claim contain this position."""
        return sum(
            lowest <= priority <= highest and position > after
            for _, highest, lowest, after in self.cursor.ranges(["q"])
        )


def _row(priority: int, position: int) -> JobRow:
    return new_row(NewJob(id=uuid4(), task="t", queue="q", priority=priority), 0, position)


positions = st.tuples(st.integers(-3, 3), st.integers(1, 9))


@pytest.mark.slow
@given(taken=st.lists(st.lists(positions), max_size=6), place=positions)
async def test_every_position_is_read_once_unless_it_lies_before_the_start(
    taken: list[list[tuple[int, int]]], place: tuple[int, int]
) -> None:
    setup = CursorSetup()
    cursor = await setup.start()
    long_ago: dict[int, int] = {}
    for claim in taken:
        setup.now[0] += claim_cursor.LAG
        cursor.record_claim([_row(*position) for position in claim])
    for priority, position in chain.from_iterable(taken[:-1]):
        long_ago[priority] = max(long_ago.get(priority, 0), position)

    priority, position = place
    reading = setup.reads(priority, position)

    assert reading <= 1
    if position >= long_ago.get(priority, 0):
        assert reading == 1


async def test_claims_start_at_jobs_claimed_some_seconds_ago() -> None:
    setup = CursorSetup()
    await setup.start((0, 1))
    for second in range(1, 101):
        setup.now[0] += 1.0
        setup.claim(10 * second)

    assert setup.reads(0, 1000 - 20)  # claimed two seconds ago
    assert not setup.reads(0, 1000 - 50)  # claimed five seconds ago


async def test_a_position_shared_by_several_jobs_is_read_again() -> None:
    setup = CursorSetup()
    await setup.start((0, 7))
    for _ in range(10):
        setup.now[0] += 10 * claim_cursor.LAG
        setup.claim(7)

    assert setup.reads(0, 7)
    assert not setup.reads(0, 6)


async def test_fast_claims_step_over_few_dead_rows() -> None:
    setup = CursorSetup()
    await setup.start((0, 1))
    setup.now[0] += 0.1
    setup.claim(1_000_000)

    assert not setup.reads(0, 1_000_000 - claim_cursor.MAX_LAG_POSITIONS - 1)
    assert setup.reads(0, 1_000_000 - claim_cursor.MAX_LAG_POSITIONS)


async def test_a_head_check_that_finds_an_earlier_job_rewinds_the_next_claims() -> None:
    setup = CursorSetup()
    await setup.start((0, 1))
    setup.claim(100_000)
    setup.claim(100_001)

    assert not setup.reads(0, 500)
    assert await setup.check_head((0, 500))
    assert setup.reads(0, 500)
    setup.claim(500, 501)
    assert setup.reads(0, 502)  # more jobs may follow
    assert not setup.reads(0, 499)
    setup.claim(502, 100_002)
    assert not setup.reads(0, 502)  # no more jobs there


async def test_a_job_found_by_a_head_check_that_cannot_be_claimed_affects_one_claim() -> None:
    setup = CursorSetup()
    await setup.start((0, 100_000))

    assert await setup.check_head((0, 500))
    setup.claim()  # the result of a claim that started earlier
    assert setup.reads(0, 500)
    setup.claim()
    assert not setup.reads(0, 500)


async def test_a_head_check_that_finds_a_later_first_job_advances_the_start() -> None:
    """If other handles claim all jobs, this handle must not step over ever more dead rows."""
    setup = CursorSetup()
    await setup.start((0, 1))

    assert not await setup.check_head((0, 1_000_000))
    assert not setup.reads(0, 1)
    assert setup.reads(0, 1_000_000)


@pytest.mark.parametrize(
    ("cost", "least", "most"), [(0.01, 90, 100), (0.1, 17, 20), (0.5, 9, 10), (5.0, 6, 7)]
)
async def test_head_checks_take_a_small_share_of_the_time(
    cost: float, least: int, most: int
) -> None:
    setup = CursorSetup(cost)
    cursor = await setup.start((0, 5))

    checks = 0
    until = setup.now[0] + 100
    while setup.now[0] < until:
        setup.now[0] += 0.1
        if cursor.head_check_due():
            assert not cursor.head_check_due()  # one at a time
            checks += 1
            await setup.check_head()

    assert least <= checks <= most


async def test_a_queue_that_is_fast_to_scan_is_read_from_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_cursor, "SLOW_SCAN", 0.002)
    setup = CursorSetup(cost=0.001)
    cursor = await setup.start((0, 5))

    assert cursor.ranges(["q"]) == claim_cursor.full_ranges(["q"])
    setup.connection.cost = 0.003
    await setup.check_head()
    assert cursor.ranges(["q"]) != claim_cursor.full_ranges(["q"])


async def test_with_few_dead_rows_claims_read_from_the_head_without_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = CursorSetup()
    cursor = await setup.start((0, 5))
    monkeypatch.setattr(claim_cursor, "MANY_DEAD_ROWS", 1)
    setup.now[0] += claim_cursor.COUNT_INTERVAL
    await cursor.refresh(setup.connection)
    setup.claim(6)
    setup.now[0] += claim_cursor.MAX_HEAD_INTERVAL

    assert cursor.ranges(["q"]) == claim_cursor.full_ranges(["q"])
    assert not cursor.head_check_due()
    assert not await setup.check_head((0, 5))  # the result of a check that started earlier


async def test_too_many_priorities_are_read_as_one_range() -> None:
    cursor = await CursorSetup().start(*((priority, 5) for priority in range(10_000)))

    assert len(cursor.ranges(["q"])) <= 2 * claim_cursor.MAX_PRIORITIES + 1


async def test_a_job_whose_transaction_commits_late_is_found_by_the_next_claim(
    postgres_url: str,
) -> None:
    async with _late_commit(postgres_url) as (store, late, commit):
        await commit()

        assert [row.id for row in await claim_all(store)] == [late.id]


async def test_a_job_whose_transaction_commits_very_late_is_found_by_a_head_check(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every position before the last claim is then outside the range of claims.
    monkeypatch.setattr(claim_cursor, "MAX_LAG_POSITIONS", 0)
    async with _late_commit(postgres_url) as (store, late, commit):
        await commit()
        assert not await claim_all(store)
        monkeypatch.setattr(claim_cursor, "MIN_HEAD_INTERVAL", 0.0)
        monkeypatch.setattr(claim_cursor, "MAX_HEAD_INTERVAL", 0.0)
        assert not await claim_all(store)  # also starts a head check in the background

        assert await store.wait(["default"], 20.0)
        assert [row.id for row in await claim_all(store)] == [late.id]


@asynccontextmanager
async def _late_commit(
    url: str,
) -> AsyncIterator[tuple[PostgresStore, NewJob, Callable[[], Awaitable[None]]]]:
    """Yield a store and a job of an open transaction; a later job has been claimed already."""
    connection = await asyncpg.connect(url)
    async with PostgresStore(url) as store:
        transaction = connection.transaction()
        await transaction.start()
        late = make_job()
        await store.within(connection).aenqueue([late])
        await store.enqueue([make_job()])
        assert len(await claim_all(store)) == 1
        # Waits for the head check, which does not find the job yet.
        await asyncio.wait(store._shared_engine._calls)
        yield store, late, transaction.commit
    await connection.close()


@pytest.fixture
async def old_transaction(postgres_url: str) -> AsyncIterator[None]:
    """A transaction that is open before the first claim and during the test."""
    connection = await asyncpg.connect(postgres_url)
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetchval("SELECT count(*) FROM windlass_job")
    yield
    await transaction.rollback()
    await connection.close()


async def _buffers(url: str, parts: Any) -> int:
    """Number of pages that a claim reads."""
    connection = await asyncpg.connect(url, server_settings=SETTINGS)
    transaction = connection.transaction()
    await transaction.start()
    claim = (None, uuid4(), "w", None, 30_000_000, ["default"], [1], "paused", *columns(parts))
    explained = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SQL.claim}", *claim
    )
    await transaction.rollback()
    await connection.close()
    found: int = json.loads(explained)[0]["Plan"]["Shared Hit Blocks"]
    return found


async def test_dead_rows_kept_by_a_transaction_are_skipped(
    postgres_url: str, old_transaction: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_cursor, "MAX_LAG_POSITIONS", 100)
    async with PostgresStore(postgres_url) as store:
        for _ in range(11):
            await store.enqueue([make_job() for _ in range(1000)])
        for _ in range(10):
            request = Claim(token=uuid4(), worker="w", queues=[("default", 1000)])
            assert len(await store.claim(request)) == 1000
        # Removes nothing: the open transaction may see the rows.
        await execute(postgres_url, "VACUUM windlass_queued")
        at_the_head = await _buffers(postgres_url, claim_cursor.full_ranges(["default"]))
        after_dead_rows = await _buffers(postgres_url, list(store._cursor._queue_ranges("default")))

    assert at_the_head > 3 * after_dead_rows
