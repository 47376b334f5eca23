"""Model-based tests: each store against the memory store, with and without lost calls."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import apsw
import pytest

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.stores.sqlite import SqliteStore
from windlass.testing import VirtualClock, claim_all, make_job
from windlass.testing.conformance.model import MakeStore, run_model
from windlass.testing.faulty_store import FaultyStore
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")

# `make chaos` multiplies the number of histories, and uses new ones each time.
EFFORT = int(os.environ.get("WINDLASS_EFFORT", "1"))


# `make test` runs a sixth of the histories.
SHARE = pytest.mark.parametrize(
    "share", [pytest.param(6, id="short"), pytest.param(1, id="long", marks=pytest.mark.slow)]
)
# A lost response raises an error, or the call is repeated below the store.
RAISE_LOST = pytest.mark.parametrize(
    "raise_lost", [True, pytest.param(False, marks=pytest.mark.slow)]
)


def run(make: MakeStore, *, steps: int, examples: int, seed: int) -> None:
    run_model(make, steps=steps, examples=examples * EFFORT, seed=seed if EFFORT == 1 else None)


def memory(clock: VirtualClock) -> Callable[[], Store]:
    return MemoryStore(clock=clock).twin


@pytest.fixture
def sqlite(tmp_path: Path) -> MakeStore:
    numbers = count()

    def make(clock: VirtualClock) -> Callable[[], Store]:
        path = tmp_path / f"{next(numbers)}.db"
        return lambda: SqliteStore(path, clock=clock, durability="off")

    return make


def with_lost_calls(make: MakeStore, *, raise_lost: bool) -> MakeStore:
    def make_faulty(clock: VirtualClock) -> Callable[[], Store]:
        opened = make(clock)
        random = Random(1).random
        return lambda: FaultyStore(opened(), random, lose=0.1, repeat=0.3, raise_lost=raise_lost)

    return make_faulty


@SHARE
def test_the_memory_store_matches_itself(share: int) -> None:
    run(memory, steps=40, examples=60 // share, seed=1)


@SHARE
@RAISE_LOST
def test_the_memory_store_matches_itself_with_repeated_calls(raise_lost: bool, share: int) -> None:
    run(with_lost_calls(memory, raise_lost=raise_lost), steps=40, examples=60 // share, seed=2)


@SHARE
def test_sqlite_matches_the_memory_store(sqlite: MakeStore, share: int) -> None:
    run(sqlite, steps=50, examples=80 // share, seed=3)


@SHARE
@RAISE_LOST
def test_sqlite_matches_the_memory_store_with_repeated_calls(
    sqlite: MakeStore, raise_lost: bool, share: int
) -> None:
    run(with_lost_calls(sqlite, raise_lost=raise_lost), steps=40, examples=40 // share, seed=4)


class Counted(WrappedStore):
    """After each call, the counters of gates match the permits, and the permits match the jobs."""

    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        answer = await call()
        if method != "close":
            assert isinstance(self.store, SqliteStore)
            counted, actual, wrong = await self.store._engine.read(_permits)
            assert (counted, wrong) == (actual, []), method
        return answer

    def wrap(self, store: Store) -> Store:
        return Counted(store)


COUNTED = "SELECT gate, permits, holding FROM windlass_gate WHERE permits OR holding ORDER BY gate"
ACTUAL = "SELECT gate, count(*), sum(held) FROM windlass_permit GROUP BY gate ORDER BY gate"
WRONG = """SELECT * FROM windlass_permit AS permit JOIN windlass_job AS job USING (n)
WHERE permit.held <> (job.fence = permit.fence AND job.state = 'running'
    OR job.fence < permit.fence AND (job.state = 'queued' OR job.gate IS NOT NULL))"""


def _permits(connection: apsw.Connection) -> list[list[Any]]:
    return [connection.execute(sql).fetchall() for sql in (COUNTED, ACTUAL, WRONG)]


@pytest.mark.slow
def test_gate_counters_of_sqlite_always_match_the_permits(sqlite: MakeStore) -> None:
    def make(clock: VirtualClock) -> Callable[[], Store]:
        opened = sqlite(clock)
        return lambda: Counted(opened())

    run(make, steps=50, examples=40, seed=5)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_queue_named_twice_in_one_claim_returns_no_job_twice(
    kind: str, sqlite: MakeStore, clock: VirtualClock
) -> None:
    async with (memory if kind == "memory" else sqlite)(clock)() as store:
        await store.migrate()
        await store.enqueue([make_job()])

        rows = await claim_all(store, "default", "default")

        assert len(rows) == 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
