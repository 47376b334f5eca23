"""A line crowded with dead rows: claims begin behind them, and keep the contract."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.postgres.server import execute

from windlass.core.job import JobRow, NewJob, birth
from windlass.core.lease import Claim
from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres import line as lines
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.line import LONGEST, Line
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.claiming import TestClaiming
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.order import TestOrder
from windlass.testing.factories import claim_all, make_job

__all__ = ["TestClaiming", "TestOrder", "clock", "store"]


@pytest.fixture(autouse=True)
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is, for every handle, and slow to read."""
    monkeypatch.setattr(lines, "MANY", -1)
    monkeypatch.setattr(lines, "SLOW", -1.0)
    monkeypatch.setattr(lines, "EACH", 0.0)


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str) -> OpenStore:
    async def open_it() -> Store:
        return PostgresStore(postgres_url, clock=clock)

    return open_it


class _Connection:
    """As much of one as `Line.ask` needs."""

    async def fetchval(self, *_: object) -> int:
        return 1


async def _crowded(now: list[float]) -> Line:
    line = Line(lambda: now[0])
    await line.ask(_Connection())  # type: ignore[arg-type]
    line.ranges(["q"])  # the head
    now[0] += 0.01  # which took as long as this, and is not looked at for a hundred times that
    line.took([])
    return line


def _row(priority: int, position: int) -> JobRow:
    return birth(NewJob(id=uuid4(), task="t", queue="q", priority=priority), 0, position)


places = st.tuples(st.integers(-3, 3), st.integers(1, 9))


@given(taken=st.lists(places), place=places)
async def test_every_place_is_read_once_unless_it_lies_behind(
    taken: list[tuple[int, int]], place: tuple[int, int]
) -> None:
    line = await _crowded([0.0])
    line.took([_row(*each) for each in taken])

    priority, position = place
    reading = [
        part for part in line.ranges(["q"]) if part[2] <= priority <= part[1] and position > part[3]
    ]

    behind = any(priority == p and position <= at for p, at in taken)
    assert len(reading) == (0 if behind else 1)


@pytest.mark.parametrize(("idle", "least", "most"), [(False, 70, 100), (True, 400, 1000)])
async def test_the_head_is_looked_at_for_a_small_part_of_the_time(
    idle: bool, least: int, most: int
) -> None:
    now = [0.0]
    line = await _crowded(now)
    line.took([_row(0, 5)])

    looked = 0
    for _ in range(1000):  # in a hundred seconds, looks that cost a hundredth of one
        now[0] += 0.1
        parts = line.ranges(["q"])
        if idle and parts != lines.whole(["q"]):
            parts = line.ranges_when_idle(["q"]) or parts
        if parts == lines.whole(["q"]):
            now[0] += 0.01
            looked += 1
        line.took([])

    assert least < looked < most
    now[0] += LONGEST
    assert line.ranges(["q"]) == lines.whole(["q"])
    assert line.ranges_when_idle(["q"]) is None  # that was it


async def test_a_line_that_is_quick_to_read_is_read_from_its_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "SLOW", 0.005)
    monkeypatch.setattr(lines, "EACH", 50e-6)
    now = [0.0]
    line = await _crowded(now)
    line.took([_row(0, 5)])
    now[0] += 10
    line.ranges(["q"])
    now[0] += 0.02  # though it brought many
    line.took([_row(0, place) for place in range(400)])

    assert line.ranges(["q"]) == lines.whole(["q"])


async def test_priorities_without_number_are_read_as_one_range() -> None:
    line = await _crowded([0.0])
    line.took([_row(priority, 5) for priority in range(10_000)])

    assert len(line.ranges(["q"])) <= 2 * lines.MOST_PRIORITIES + 1


async def test_a_job_whose_transaction_commits_late_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SHARE_IDLE", 0)  # the head is looked at when there is nothing else
    connection = await asyncpg.connect(postgres_url)
    async with PostgresStore(postgres_url) as store:
        transaction = connection.transaction()
        await transaction.start()
        late = make_job()
        await store.within(connection).aenqueue([late])
        await store.enqueue([make_job()])
        assert len(await claim_all(store)) == 1
        await transaction.commit()

        assert [row.id for row in await claim_all(store)] == [late.id]
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
    postgres_url: str, held: None
) -> None:
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job() for _ in range(6000)])
        for _ in range(5):
            wish = Claim(token=uuid4(), worker="w", queues=[("default", 1000)])
            assert len(await store.claim(wish)) == 1000
        await execute(postgres_url, "VACUUM windlass_line")  # in vain
        at_the_head = await _buffers(postgres_url, lines.whole(["default"]))
        behind = await _buffers(postgres_url, list(store._line._parts("default")))

    assert at_the_head > 3 * behind
