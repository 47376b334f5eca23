"""Short storms over real processes; the long ones are `python -m benchmarks.chaos`.

The checker compares the records of producers and tasks with the raw tables. `WINDLASS_SEED` repeats
the choices of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest
from benchmarks.chaos.report import StormResult
from benchmarks.chaos.storm import Plan
from benchmarks.chaos.storm_catalog import STORMS
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow
RunStorm = Callable[..., StormResult]


@pytest.fixture
def run_storm(tmp_path: Path) -> RunStorm:
    def run_and_check(
        name: str, *, jobs: int, faults: int | None = None, workers: int = 3
    ) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, faults=faults, seconds=120, seed=seed, workers=workers)
        result = run(STORMS[name], plan, tmp_path / name)
        print(result)  # noqa: T201
        assert result.violations == []
        assert result.jobs >= jobs
        if counted := STORMS[name].counted_fault:
            assert result.faults[counted] >= (faults or 0)
        return result

    return run_and_check


def test_killed_workers_lose_nothing(run_storm: RunStorm) -> None:
    result = run_storm("kill", jobs=120, faults=6)
    assert result.crashes > 0
    assert result.rescues is not None
    assert result.ended == {"succeeded": result.jobs}


def test_acknowledged_jobs_run_after_all_processes_were_killed_at_once(run_storm: RunStorm) -> None:
    result = run_storm("tree", jobs=200, faults=5)  # one fault may hit an idle fleet, but not all
    assert result.crashes > 0
    assert result.ended == {"succeeded": result.jobs}


def test_settles_of_a_worker_frozen_past_its_lease_are_refused(run_storm: RunStorm) -> None:
    """None of them is applied: the checker verifies every result."""
    result = run_storm("freeze", jobs=100, faults=6)
    assert result.faults["SIGSTOP"] == result.faults["SIGCONT"]
    assert result.refused_settles >= result.refused_frozen_workers > 0
    assert result.ended == {"succeeded": result.jobs}


def test_replaced_workers_cost_no_attempt(run_storm: RunStorm) -> None:
    result = run_storm("term", jobs=120, faults=6)
    assert result.attempts > result.jobs  # some were released
    assert result.crashes == 0


def test_the_result_of_a_cancel_that_races_with_the_end_is_true(run_storm: RunStorm) -> None:
    result = run_storm("cancel", jobs=250)
    assert {"running", "conflict"} <= result.cancels.keys()
    assert result.ended["canceled"] + result.ended["succeeded"] == result.jobs


def test_repeating_a_call_that_timed_out_after_its_execution_is_safe(run_storm: RunStorm) -> None:
    """Workers are replaced meanwhile, and release claims without a received response."""
    result = run_storm("lost-answers", jobs=250, faults=4)
    assert result.faults["response lost"] > 0
    assert result.faults["request lost"] > 0
    assert result.crashes == 0


def test_a_job_that_kills_workers_fails_at_its_cap_and_all_others_succeed(
    run_storm: RunStorm,
) -> None:
    result = run_storm("killer", jobs=60)
    assert result.ended == {"failed": 1, "succeeded": result.jobs - 1}


@pytest.mark.parametrize(("storm", "death"), [("segfault", "SIGSEGV"), ("oom", "out of memory")])
def test_a_crashed_child_affects_no_other_job(run_storm: RunStorm, storm: str, death: str) -> None:
    result = run_storm(storm, jobs=40)
    failed = result.ended["failed"]
    assert failed > 0
    assert result.ended["succeeded"] == result.jobs - failed
    assert result.faults[death] == result.crashes == 3 * failed


def test_replacing_a_worker_for_its_memory_costs_no_attempt(run_storm: RunStorm) -> None:
    result = run_storm("leak", jobs=80, workers=2)
    assert result.recycled > 0
    assert result.ended == {"succeeded": result.jobs}
    assert result.crashes == 0


def test_a_diamond_and_a_fan_out_survive_kills(run_storm: RunStorm) -> None:
    """No job started before its parents, and fan-in jobs had every result in order."""
    result = run_storm("flow", jobs=120, faults=2)
    assert sum(result.faults.values()) > 0
    assert result.crashes > 0
    assert result.ended == {"succeeded": 120}


def test_limits_hold_under_kills_and_freezes_without_unused_capacity(run_storm: RunStorm) -> None:
    """No limit is exceeded, and no slot is lost with a worker."""
    result = run_storm("limit", jobs=100, faults=6)
    assert result.gates is not None
    assert result.gates.waited > 0
    assert result.ended["canceled"] + result.ended["succeeded"] == result.jobs


def test_all_faults_at_once_break_nothing(run_storm: RunStorm) -> None:
    result = run_storm("all", jobs=100, faults=8)
    assert sum(result.faults.values()) >= 8
    assert result.ended["canceled"] + result.ended["succeeded"] == result.jobs
