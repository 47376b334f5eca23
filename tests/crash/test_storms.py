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
Rage = Callable[..., StormResult]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(name: str, *, jobs: int, faults: int | None = None, workers: int = 3) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, faults=faults, seconds=120, seed=seed, workers=workers)
        storm_result = run(STORMS[name], plan, tmp_path / name)
        print(storm_result)  # noqa: T201
        assert storm_result.violations == []
        assert storm_result.jobs >= jobs
        if counted := STORMS[name].counted_fault:
            assert storm_result.faults[counted] >= (faults or 0)
        return storm_result

    return storm


def test_workers_that_are_killed_all_the_time_lose_nothing(rage: Rage) -> None:
    storm_result = rage("kill", jobs=120, faults=6)
    assert storm_result.crashes > 0
    assert storm_result.rescues is not None
    assert storm_result.ended == {"succeeded": storm_result.jobs}


def test_after_everything_was_killed_at_once_what_was_acknowledged_is_done(rage: Rage) -> None:
    storm_result = rage("tree", jobs=200, faults=5)  # one strike may hit an idle fleet, not all
    assert storm_result.crashes > 0
    assert storm_result.ended == {"succeeded": storm_result.jobs}


def test_settles_of_a_worker_frozen_past_its_lease_are_refused(rage: Rage) -> None:
    """None of them is applied: the checker verifies every result."""
    storm_result = rage("freeze", jobs=100, faults=6)
    assert storm_result.faults["SIGSTOP"] == storm_result.faults["SIGCONT"]
    assert storm_result.refused_settles >= storm_result.refused_frozen_workers > 0
    assert storm_result.ended == {"succeeded": storm_result.jobs}


def test_workers_that_are_replaced_burn_no_attempt(rage: Rage) -> None:
    storm_result = rage("term", jobs=120, faults=6)
    assert storm_result.attempts > storm_result.jobs  # some were released
    assert storm_result.crashes == 0


def test_a_cancel_that_races_with_the_end_has_one_true_answer(rage: Rage) -> None:
    storm_result = rage("cancel", jobs=250)
    assert {"running", "conflict"} <= storm_result.cancels.keys()
    assert storm_result.ended["canceled"] + storm_result.ended["succeeded"] == storm_result.jobs


def test_calls_that_were_executed_and_then_timed_out_are_repeated_in_peace(rage: Rage) -> None:
    """Also by workers that are being replaced: claims without a response are released."""
    storm_result = rage("lost-answers", jobs=250, faults=4)
    assert storm_result.faults["response lost"] > 0
    assert storm_result.faults["request lost"] > 0
    assert storm_result.crashes == 0


def test_a_killer_ends_at_its_cap_and_every_innocent_succeeds(rage: Rage) -> None:
    storm_result = rage("killer", jobs=60)
    assert storm_result.ended == {"failed": 1, "succeeded": storm_result.jobs - 1}


@pytest.mark.parametrize(("storm", "death"), [("segfault", "SIGSEGV"), ("oom", "out of memory")])
def test_a_crashed_child_affects_no_other_job(rage: Rage, storm: str, death: str) -> None:
    storm_result = rage(storm, jobs=40)
    guilty = storm_result.ended["failed"]
    assert guilty > 0
    assert storm_result.ended["succeeded"] == storm_result.jobs - guilty
    assert storm_result.faults[death] == storm_result.crashes == 3 * guilty


def test_a_worker_that_grows_too_large_is_replaced_and_burns_no_attempt(rage: Rage) -> None:
    storm_result = rage("leak", jobs=80, workers=2)
    assert storm_result.recycled > 0
    assert storm_result.ended == {"succeeded": storm_result.jobs}
    assert storm_result.crashes == 0


def test_a_diamond_and_a_fan_out_survive_kills(rage: Rage) -> None:
    """No job started before its parents, and gathering jobs had every result in order."""
    storm_result = rage("flow", jobs=120, faults=2)
    assert sum(storm_result.faults.values()) > 0
    assert storm_result.crashes > 0
    assert storm_result.ended == {"succeeded": 120}


def test_limits_hold_under_kills_and_freezes_without_unused_capacity(rage: Rage) -> None:
    """No attempt and no start too many, and no slot is lost with the worker that held it."""
    storm_result = rage("limit", jobs=100, faults=6)
    assert storm_result.gates is not None
    assert storm_result.gates.waited > 0
    assert storm_result.ended["canceled"] + storm_result.ended["succeeded"] == storm_result.jobs


def test_all_of_it_at_once_breaks_nothing(rage: Rage) -> None:
    storm_result = rage("all", jobs=100, faults=8)
    assert sum(storm_result.faults.values()) >= 8
    assert storm_result.ended["canceled"] + storm_result.ended["succeeded"] == storm_result.jobs
