"""Short storms on a real PostgreSQL server with a sync at every commit, with the same checker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest
from benchmarks.chaos.bases.server import NoServerError, own_server
from benchmarks.chaos.clocks import OFF
from benchmarks.chaos.faults import BACKEND, CRASH
from benchmarks.chaos.report import Verdict
from benchmarks.chaos.storms import STORMS, Plan, run

pytestmark = pytest.mark.slow
Rage = Callable[..., Verdict]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(name: str, *, jobs: int, faults: int, workers: int = 3) -> Verdict:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(
            jobs=jobs, faults=faults, seconds=120, seed=seed, workers=workers,
            store="postgresql", server=server_for(name),
        )  # fmt: skip
        verdict = run(STORMS[name], plan, tmp_path / name)
        print(verdict)  # noqa: T201
        assert verdict.violations == []
        assert verdict.jobs >= jobs
        if counted := STORMS[name].counts:
            assert verdict.faults[counted] >= faults
        return verdict

    return storm


@pytest.mark.parametrize(
    ("storm", "bug", "faults", "message"),
    [
        ("restart", "crash.planted_server_bug:commits_do_not_wait_for_the_disk", 1,
         "was acknowledged and is lost"),
        ("clocks", "planted_bugs.bugs.postgres:leases_use_the_workers_clock", 2,
         "no clock of the store"),
    ],
)  # fmt: skip
def test_the_bug_is_found(tmp_path: Path, storm: str, bug: str, faults: int, message: str) -> None:
    """The checker finds a bug that is planted in every process of the storm."""
    plan = Plan(
        jobs=80, faults=faults, seconds=60, seed=11, workers=3, calm=1.0,
        store="postgresql", server=server_for(storm), plant=f"tests.{bug}",
    )  # fmt: skip
    violations = run(STORMS[storm], plan, tmp_path / storm).violations
    assert any(message in violation for violation in violations), violations


def server_for(name: str) -> str | None:
    """Return the configured server unless the storm crashes it; None means a new one."""
    given = os.environ.get("WINDLASS_TEST_POSTGRES_URL")
    if given and not STORMS[name].own_server:
        return given
    try:
        own_server()
    except NoServerError as error:
        pytest.skip(str(error))
    return None


def test_killed_workers_lose_nothing(rage: Rage) -> None:
    verdict = rage("kill", jobs=100, faults=5)
    assert verdict.crashes > 0
    assert verdict.rescues is not None
    assert verdict.ended == {"succeeded": verdict.jobs}


def test_a_diamond_and_a_fan_out_survive_kills(rage: Rage) -> None:
    verdict = rage("flow", jobs=120, faults=2)
    assert verdict.faults["SIGKILL of one that gathers"] > 0
    assert verdict.crashes > 0
    assert verdict.ended == {"succeeded": 120}


def test_limits_hold_under_kills_and_freezes_without_unused_capacity(rage: Rage) -> None:
    verdict = rage("limit", jobs=80, faults=5)
    assert verdict.gates is not None
    assert verdict.gates.waited > 0
    assert verdict.ended["canceled"] + verdict.ended["succeeded"] == verdict.jobs


def test_killed_workers_whose_clocks_are_up_to_an_hour_off_lose_nothing(rage: Rage) -> None:
    """Ahead and behind, each by another while; sweepers and producers, too."""
    verdict = rage("clocks", jobs=100, faults=5)
    assert verdict.faults[OFF] >= 3 + 5  # the first workers, and those that replaced the killed
    assert verdict.crashes > 0
    assert verdict.ended == {"succeeded": verdict.jobs}


def test_crashes_of_the_server_lose_nothing_and_cost_no_attempt(rage: Rage) -> None:
    verdict = rage("restart", jobs=120, faults=3)
    assert verdict.faults[CRASH] == 3
    assert verdict.crashes == 0
    assert verdict.ended["succeeded"] + verdict.ended.get("canceled", 0) == verdict.jobs


def test_backends_that_are_ended_cost_no_attempt(rage: Rage) -> None:
    verdict = rage("backends", jobs=120, faults=20)
    assert verdict.faults[BACKEND] >= 20
    assert verdict.crashes == 0


def test_settles_of_a_worker_frozen_past_its_lease_are_refused(rage: Rage) -> None:
    verdict = rage("freeze", jobs=60, faults=4)
    assert verdict.refused_settles >= verdict.late_workers > 0
    assert verdict.ended == {"succeeded": verdict.jobs}
