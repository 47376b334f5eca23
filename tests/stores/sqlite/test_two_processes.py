"""Conformance of one file whose calls alternate between two processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.stores.sqlite.two_process_store import RemoteProcess, TwoProcesses

from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.model import run_model
from windlass.testing.conformance.suite import *  # noqa: F403
from windlass.testing.factories import make_job

# Methods whose results depend on writes of another process; `make test-all` runs the whole suite.
SAMPLE = (TestClaim, TestLeases, TestTail, TestUniqueness, TestWakeup)  # noqa: F405


@pytest.fixture(scope="module")
def remote() -> Iterator[RemoteProcess]:
    other = RemoteProcess()
    yield other
    other.close()


@pytest.fixture(
    params=["local first", pytest.param("remote first", marks=pytest.mark.slow)],
)
def open_store(
    clock: VirtualClock, tmp_path: Path, remote: RemoteProcess, request: pytest.FixtureRequest
) -> OpenStore:
    async def open_it() -> Store:
        remote_first = request.param == "remote first"
        return TwoProcesses.on(tmp_path / "jobs.db", clock, remote, remote_first=remote_first)

    return open_it


async def test_the_calls_alternate_between_processes(store: Store, remote: RemoteProcess) -> None:
    before = len(remote.calls)
    for _ in range(6):
        await store.enqueue([make_job()])
    assert remote.calls[before:] == ["enqueue"] * 3
    assert len((await store.find(JobQuery())).rows) == 6


@pytest.mark.slow
def test_two_alternating_processes_match_the_memory_store(
    tmp_path: Path, remote: RemoteProcess
) -> None:
    numbers = count()

    def make(clock: VirtualClock) -> Callable[[], Store]:
        path = tmp_path / f"{next(numbers)}.db"
        return lambda: TwoProcesses.on(path, clock, remote, remote_first=False)

    run_model(make, steps=40, examples=25, seed=5)
