"""Short storms on a real PostgreSQL server with a sync at every commit, with the same checker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest
from benchmarks.chaos.faults import BACKEND, CRASH
from benchmarks.chaos.processes.clock_skew import CLOCK_SKEWED
from benchmarks.chaos.report import StormResult
from benchmarks.chaos.stores.local_postgres import NoServerError, local_postgres
from benchmarks.chaos.storm import Plan
from benchmarks.chaos.storm_catalog import STORMS
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow
RunStorm = Callable[..., StormResult]


@pytest.fixture
def run_storm(tmp_path: Path) -> RunStorm:
    def run_and_check(name: str, *, jobs: int, faults: int, workers: int = 3) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(
            jobs=jobs, faults=faults, seconds=120, seed=seed, workers=workers,
            store="postgresql", server=server_for(name),
        )  # fmt: skip
        result = run(STORMS[name], plan, tmp_path / name)
        print(result)  # noqa: T201
        assert result.violations == []
        assert result.jobs >= jobs
        if counted := STORMS[name].counted_fault:
            assert result.faults[counted] >= faults
        return result

    return run_and_check


@pytest.mark.parametrize(
    ("storm", "bug", "faults", "message"),
    [
        ("restart", "crash.planted_server_bug:commits_do_not_wait_for_the_disk", 1,
         "was acknowledged and is lost"),
        ("clocks", "planted_bugs.bugs.postgres:leases_use_the_workers_clock", 2,
         "not by the clock of the store"),
    ],
)  # fmt: skip
def test_the_bug_is_found(tmp_path: Path, storm: str, bug: str, faults: int, message: str) -> None:
    """The checker finds a bug that is planted in every process of the storm."""
    plan = Plan(
        jobs=80, faults=faults, seconds=60, seed=11, workers=3, quiet_timeout=1.0,
        store="postgresql", server=server_for(storm), plant=f"tests.{bug}",
    )  # fmt: skip
    violations = run(STORMS[storm], plan, tmp_path / storm).violations
    assert any(message in violation for violation in violations), violations


def server_for(name: str) -> str | None:
    """Return the configured server unless the storm crashes it; None means a new one."""
    given = os.environ.get("WINDLASS_TEST_POSTGRES_URL")
    if given and not STORMS[name].needs_own_server:
        return given
    try:
        local_postgres()
    except NoServerError as error:
        pytest.skip(str(error))
    return None


def test_killed_workers_lose_nothing(run_storm: RunStorm) -> None:
    result = run_storm("kill", jobs=100, faults=5)
    assert result.crashes > 0
    assert result.rescues is not None
    assert result.ended == {"succeeded": result.jobs}


def test_a_diamond_and_a_fan_out_survive_kills(run_storm: RunStorm) -> None:
    result = run_storm("flow", jobs=120, faults=2)
    assert result.faults["SIGKILL of a fan-in worker"] > 0
    assert result.crashes > 0
    assert result.ended == {"succeeded": 120}


def test_limits_hold_under_kills_and_freezes_without_unused_capacity(run_storm: RunStorm) -> None:
    result = run_storm("limit", jobs=80, faults=5)
    assert result.gates is not None
    assert result.gates.waited > 0
    assert result.ended["canceled"] + result.ended["succeeded"] == result.jobs


def test_killed_workers_with_clocks_up_to_an_hour_off_lose_nothing(run_storm: RunStorm) -> None:
    """Each process has another clock error, ahead or behind, also sweepers and producers."""
    result = run_storm("clocks", jobs=100, faults=5)
    assert (
        result.faults[CLOCK_SKEWED] >= 3 + 5
    )  # the first workers, and those that replaced the killed
    assert result.crashes > 0
    assert result.ended == {"succeeded": result.jobs}


def test_server_crashes_lose_nothing_and_cost_no_attempt(run_storm: RunStorm) -> None:
    result = run_storm("restart", jobs=120, faults=3)
    assert result.faults[CRASH] == 3
    assert result.crashes == 0
    assert result.ended["succeeded"] + result.ended.get("canceled", 0) == result.jobs


def test_terminated_connections_cost_no_attempt(run_storm: RunStorm) -> None:
    result = run_storm("backends", jobs=120, faults=20)
    assert result.faults[BACKEND] >= 20
    assert result.crashes == 0


def test_settles_of_a_worker_frozen_past_its_lease_are_refused(run_storm: RunStorm) -> None:
    result = run_storm("freeze", jobs=60, faults=4)
    assert result.refused_settles >= result.refused_frozen_workers > 0
    assert result.ended == {"succeeded": result.jobs}
