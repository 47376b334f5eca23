"""A line crowded with dead rows: claims begin behind them, and keep the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.postgres.server import execute

from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow, NewJob, birth
from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.stores.postgres.writes import claim_cursor as lines
from windlass.stores.postgres.writes.claim_cursor import Line
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.claim import TestClaiming
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.order import TestOrder
from windlass.testing.factories import claim_all, make_job

__all__ = ["TestClaiming", "TestOrder", "clock", "store"]

SAMPLE = ()  # `make test-all` runs these


@pytest.fixture(autouse=True)
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is, for every handle, and slow to read."""
    monkeypatch.setattr(lines, "MANY", -1)
    monkeypatch.setattr(lines, "SLOW", -1.0)


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str) -> OpenStore:
    async def open_it() -> Store:
        return PostgresStore(postgres_url, clock=clock)

    return open_it


class _Connection:
    """As much of one as a line needs: it counts one dead row, and sees the first living ones."""

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


class Crowd:
    """A line that was looked at and found slow, at a time that the test sets."""

    def __init__(self, cost: float = 0.01) -> None:
        self.now = [0.0]
        self.connection: Any = _Connection(self.now, cost)
        self.line = Line(lambda: self.now[0])

    async def begin(self, *taken: tuple[int, int]) -> Line:
        await self.line.ask(self.connection)
        self.line.took([_row(*each) for each in taken])
        await self.look()
        return self.line

    async def look(self, *heads: tuple[int, int]) -> bool:
        self.connection.heads = [("q", *head) for head in heads]
        return await self.line.look(self.connection, None)

    def take(self, *places: int) -> None:
        self.line.took([_row(0, place) for place in places])

    def reads(self, priority: int, position: int) -> int:
        """How many ranges of the next claim hold this place."""
        return sum(
            lowest <= priority <= highest and position > behind
            for _, highest, lowest, behind in self.line.ranges(["q"])
        )


def _row(priority: int, position: int) -> JobRow:
    return birth(NewJob(id=uuid4(), task="t", queue="q", priority=priority), 0, position)


places = st.tuples(st.integers(-3, 3), st.integers(1, 9))


@pytest.mark.slow
@given(taken=st.lists(st.lists(places), max_size=6), place=places)
async def test_every_place_is_read_once_unless_it_lies_behind(
    taken: list[list[tuple[int, int]]], place: tuple[int, int]
) -> None:
    crowd = Crowd()
    line = await crowd.begin()
    long_ago: dict[int, int] = {}
    for claim in taken:
        crowd.now[0] += lines.TRAIL
        line.took([_row(*each) for each in claim])
    for priority, position in (each for claim in taken[:-1] for each in claim):
        long_ago[priority] = max(long_ago.get(priority, 0), position)

    priority, position = place
    reading = crowd.reads(priority, position)

    assert reading <= 1
    if position >= long_ago.get(priority, 0):
        assert reading == 1


async def test_claims_begin_at_what_was_taken_a_while_ago() -> None:
    crowd = Crowd()
    await crowd.begin((0, 1))
    for second in range(1, 101):
        crowd.now[0] += 1.0
        crowd.take(10 * second)

    assert crowd.reads(0, 1000 - 20)  # two seconds
    assert not crowd.reads(0, 1000 - 50)  # five


async def test_a_place_that_several_jobs_share_is_read_again() -> None:
    crowd = Crowd()
    await crowd.begin((0, 7))
    for _ in range(10):
        crowd.now[0] += 10 * lines.TRAIL
        crowd.take(7)

    assert crowd.reads(0, 7)
    assert not crowd.reads(0, 6)


async def test_however_quickly_jobs_are_taken_few_dead_rows_are_stepped_over() -> None:
    crowd = Crowd()
    await crowd.begin((0, 1))
    crowd.now[0] += 0.1
    crowd.take(1_000_000)

    assert not crowd.reads(0, 1_000_000 - lines.MOST_PLACES - 1)
    assert crowd.reads(0, 1_000_000 - lines.MOST_PLACES)


async def test_a_look_that_sees_a_job_far_ahead_has_the_next_claims_begin_there() -> None:
    crowd = Crowd()
    await crowd.begin((0, 1))
    crowd.take(100_000)
    crowd.take(100_001)

    assert not crowd.reads(0, 500)
    assert await crowd.look((0, 500))
    assert crowd.reads(0, 500)
    crowd.take(500, 501)
    assert crowd.reads(0, 502)  # there may be more
    assert not crowd.reads(0, 499)
    crowd.take(502, 100_002)
    assert not crowd.reads(0, 502)  # there is none


async def test_a_job_that_a_look_saw_and_no_claim_can_take_holds_up_one_claim_only() -> None:
    crowd = Crowd()
    await crowd.begin((0, 100_000))

    assert await crowd.look((0, 500))
    crowd.take()  # by a claim that had begun before
    assert crowd.reads(0, 500)
    crowd.take()
    assert not crowd.reads(0, 500)


async def test_a_look_that_sees_the_first_job_further_on_moves_the_beginning_on() -> None:
    """Others may take all there is, and whoever gets nothing would step over more and more."""
    crowd = Crowd()
    await crowd.begin((0, 1))

    assert not await crowd.look((0, 1_000_000))
    assert not crowd.reads(0, 1)
    assert crowd.reads(0, 1_000_000)


@pytest.mark.parametrize(
    ("cost", "least", "most"), [(0.01, 90, 100), (0.1, 17, 20), (0.5, 9, 10), (5.0, 6, 7)]
)
async def test_looks_take_a_small_part_of_the_time(cost: float, least: int, most: int) -> None:
    crowd = Crowd(cost)
    line = await crowd.begin((0, 5))

    looks = 0
    until = crowd.now[0] + 100
    while crowd.now[0] < until:
        crowd.now[0] += 0.1
        if line.wants_a_look():
            assert not line.wants_a_look()  # one at a time
            looks += 1
            await crowd.look()

    assert least <= looks <= most


async def test_a_line_that_is_quick_to_read_is_read_from_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "SLOW", 0.002)
    crowd = Crowd(cost=0.001)
    line = await crowd.begin((0, 5))

    assert line.ranges(["q"]) == lines.whole(["q"])
    crowd.connection.cost = 0.003
    await crowd.look()
    assert line.ranges(["q"]) != lines.whole(["q"])


async def test_a_line_in_which_few_are_dead_is_neither_looked_at_nor_avoided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = Crowd()
    line = await crowd.begin((0, 5))
    monkeypatch.setattr(lines, "MANY", 1)
    crowd.now[0] += lines.ASK_EVERY
    await line.ask(crowd.connection)
    crowd.take(6)
    crowd.now[0] += lines.LATEST

    assert line.ranges(["q"]) == lines.whole(["q"])
    assert not line.wants_a_look()
    assert not await crowd.look((0, 5))  # one that was on its way


async def test_priorities_without_number_are_read_as_one_range() -> None:
    line = await Crowd().begin(*((priority, 5) for priority in range(10_000)))

    assert len(line.ranges(["q"])) <= 2 * lines.MOST_PRIORITIES + 1


async def test_a_job_whose_transaction_commits_late_is_found_by_the_next_claim(
    postgres_url: str,
) -> None:
    async with _late(postgres_url) as (store, late, commit):
        await commit()

        assert [row.id for row in await claim_all(store)] == [late.id]


async def test_a_job_whose_transaction_commits_very_late_is_found_by_a_look(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_PLACES", 0)  # whatever stands before the last is far ahead
    async with _late(postgres_url) as (store, late, commit):
        await commit()
        assert not await claim_all(store)
        monkeypatch.setattr(lines, "SOONEST", 0.0)
        monkeypatch.setattr(lines, "LATEST", 0.0)
        assert not await claim_all(store)  # and has it looked for, beside

        assert await store.wait(["default"], 20.0)
        assert [row.id for row in await claim_all(store)] == [late.id]


@asynccontextmanager
async def _late(
    url: str,
) -> AsyncIterator[tuple[PostgresStore, NewJob, Callable[[], Awaitable[None]]]]:
    """A job of a transaction that is still open when the one behind it has been taken."""
    connection = await asyncpg.connect(url)
    async with PostgresStore(url) as store:
        transaction = connection.transaction()
        await transaction.start()
        late = make_job()
        await store.within(connection).aenqueue([late])
        await store.enqueue([make_job()])
        assert len(await claim_all(store)) == 1
        await asyncio.wait(store._shared._calls)  # a look at the line, which sees nothing yet
        yield store, late, transaction.commit
    await connection.close()


@pytest.fixture
async def held(postgres_url: str) -> AsyncIterator[None]:
    """A transaction that was open before anything was taken, and stays so."""
    connection = await asyncpg.connect(postgres_url)
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetchval("SELECT count(*) FROM windlass_job")
    yield
    await transaction.rollback()
    await connection.close()


async def _buffers(url: str, parts: Any) -> int:
    """How many pages a claim looks at in the line."""
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


async def test_dead_rows_that_a_transaction_keeps_are_not_stepped_over(
    postgres_url: str, held: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_PLACES", 100)
    async with PostgresStore(postgres_url) as store:
        for _ in range(11):
            await store.enqueue([make_job() for _ in range(1000)])
        for _ in range(10):
            wish = Claim(token=uuid4(), worker="w", queues=[("default", 1000)])
            assert len(await store.claim(wish)) == 1000
        await execute(postgres_url, "VACUUM windlass_line")  # in vain
        at_the_head = await _buffers(postgres_url, lines.whole(["default"]))
        behind = await _buffers(postgres_url, list(store._line._parts("default")))

    assert at_the_head > 3 * behind
