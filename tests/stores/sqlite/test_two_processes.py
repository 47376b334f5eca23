"""The contract holds when the calls on one file come from two processes in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.stores.sqlite.store_process import Neighbour, TwoProcesses

from windlass.core.query.job_query import Query
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.model import run_model
from windlass.testing.conformance.suite import *  # noqa: F403
from windlass.testing.factories import make_job

# Verbs whose answers depend on what another process wrote; `make test-all` runs the whole suite.
SAMPLE = (TestClaiming, TestLeases, TestTailing, TestUniqueness, TestWaiting)  # noqa: F405


@pytest.fixture(scope="module")
def neighbour() -> Iterator[Neighbour]:
    other = Neighbour()
    yield other
    other.close()


@pytest.fixture(
    params=["here first", pytest.param("there first", marks=pytest.mark.slow)],
)
def open_store(
    clock: VirtualClock, tmp_path: Path, neighbour: Neighbour, request: pytest.FixtureRequest
) -> OpenStore:
    async def open_it() -> Store:
        far_first = request.param == "there first"
        return TwoProcesses.on(tmp_path / "jobs.db", clock, neighbour, far_first=far_first)

    return open_it


async def test_the_calls_really_take_turns(store: Store, neighbour: Neighbour) -> None:
    before = len(neighbour.calls)
    for _ in range(6):
        await store.enqueue([make_job()])
    assert neighbour.calls[before:] == ["enqueue"] * 3
    assert len((await store.find(Query())).rows) == 6


@pytest.mark.slow
def test_two_processes_in_turn_are_the_same_as_the_memory_store(
    tmp_path: Path, neighbour: Neighbour
) -> None:
    numbers = count()

    def make(clock: VirtualClock) -> Callable[[], Store]:
        path = tmp_path / f"{next(numbers)}.db"
        return lambda: TwoProcesses.on(path, clock, neighbour, far_first=False)

    run_model(make, steps=40, examples=25, seed=5)
