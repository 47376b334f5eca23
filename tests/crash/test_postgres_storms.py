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
Rage = Callable[..., StormResult]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(name: str, *, jobs: int, faults: int, workers: int = 3) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(
            jobs=jobs, faults=faults, seconds=120, seed=seed, workers=workers,
            store="postgresql", server=server_for(name),
        )  # fmt: skip
        storm_result = run(STORMS[name], plan, tmp_path / name)
        print(storm_result)  # noqa: T201
        assert storm_result.violations == []
        assert storm_result.jobs >= jobs
        if counted := STORMS[name].counted_fault:
            assert storm_result.faults[counted] >= faults
        return storm_result

    return storm


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


def test_killed_workers_lose_nothing(rage: Rage) -> None:
    storm_result = rage("kill", jobs=100, faults=5)
    assert storm_result.crashes > 0
    assert storm_result.rescues is not None
    assert storm_result.ended == {"succeeded": storm_result.jobs}


def test_a_diamond_and_a_fan_out_survive_kills(rage: Rage) -> None:
    storm_result = rage("flow", jobs=120, faults=2)
    assert storm_result.faults["SIGKILL of a fan-in worker"] > 0
    assert storm_result.crashes > 0
    assert storm_result.ended == {"succeeded": 120}


def test_limits_hold_under_kills_and_freezes_without_unused_capacity(rage: Rage) -> None:
    storm_result = rage("limit", jobs=80, faults=5)
    assert storm_result.gates is not None
    assert storm_result.gates.waited > 0
    assert storm_result.ended["canceled"] + storm_result.ended["succeeded"] == storm_result.jobs


def test_killed_workers_whose_clocks_are_up_to_an_hour_off_lose_nothing(rage: Rage) -> None:
    """Ahead and behind, each by another while; sweepers and producers, too."""
    storm_result = rage("clocks", jobs=100, faults=5)
    assert (
        storm_result.faults[CLOCK_SKEWED] >= 3 + 5
    )  # the first workers, and those that replaced the killed
    assert storm_result.crashes > 0
    assert storm_result.ended == {"succeeded": storm_result.jobs}


def test_crashes_of_the_server_lose_nothing_and_cost_no_attempt(rage: Rage) -> None:
    storm_result = rage("restart", jobs=120, faults=3)
    assert storm_result.faults[CRASH] == 3
    assert storm_result.crashes == 0
    assert (
        storm_result.ended["succeeded"] + storm_result.ended.get("canceled", 0) == storm_result.jobs
    )


def test_backends_that_are_ended_cost_no_attempt(rage: Rage) -> None:
    storm_result = rage("backends", jobs=120, faults=20)
    assert storm_result.faults[BACKEND] >= 20
    assert storm_result.crashes == 0


def test_settles_of_a_worker_frozen_past_its_lease_are_refused(rage: Rage) -> None:
    storm_result = rage("freeze", jobs=60, faults=4)
    assert storm_result.refused_settles >= storm_result.refused_frozen_workers > 0
    assert storm_result.ended == {"succeeded": storm_result.jobs}
