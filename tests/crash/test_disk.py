"""Short storms of the disk: power cuts, a full disk, errors, crashes at a sync; and planted bugs.

Long ones are `python -m benchmarks.chaos --faults powercut,full,eio,fsync-kill`. `WINDLASS_SEED`
repeats the choices of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import SystemRandom

import pytest
from benchmarks.chaos.disk.full_disk import small
from benchmarks.chaos.disk.power import cut, powered
from benchmarks.chaos.disk.setup import Sort
from benchmarks.chaos.report import Verdict
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.storms import STORMS, run

pytestmark = pytest.mark.slow
Rage = Callable[..., Verdict]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(storm: Storm, *, jobs: int, faults: int) -> Verdict:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{storm.name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, faults=faults, seconds=60, seed=seed, workers=2, slots=2)
        verdict = run(storm, plan, tmp_path / storm.name)
        print(verdict)  # noqa: T201
        assert verdict.violations == []
        assert verdict.ended == {"succeeded": verdict.jobs}
        assert verdict.jobs >= jobs
        return verdict

    return storm


def test_no_power_cut_loses_an_acknowledged_write(rage: Rage) -> None:
    verdict = rage(STORMS["powercut"], jobs=60, faults=2)
    assert verdict.faults == {"power cut": 2}
    assert verdict.crashes > 0


@pytest.mark.parametrize("mounted", [True, False], ids=["really", "pretended"])
def test_a_full_disk_refuses_clearly_and_costs_nothing(rage: Rage, mounted: bool) -> None:
    quick = replace(STORMS["full"].mix, seconds=(0.0, 0.02), pause=0.05)
    storm = replace(STORMS["full"], mix=quick, around=partial(small, mount=mounted))
    verdict = rage(storm, jobs=240, faults=2)  # at the first of them there is more to enqueue
    if mounted and "disk full (a tmpfs)" not in verdict.faults:
        pytest.skip("a small file system cannot be mounted here")
    assert sum(verdict.faults.values()) == 2
    assert verdict.repeated_calls > 0, "producers must have met it"
    assert verdict.crashes == 0


def test_errors_of_the_disk_pass_and_cost_nothing(rage: Rage) -> None:
    verdict = rage(STORMS["eio"], jobs=120, faults=3)
    assert any(fault.startswith("EIO") for fault in verdict.faults)
    assert verdict.crashes == 0


def test_a_worker_crash_at_a_sync_loses_nothing(rage: Rage) -> None:
    verdict = rage(STORMS["fsync-kill"], jobs=80, faults=2)
    assert sum(verdict.faults.values()) >= 1


# -- planted bugs


@pytest.mark.parametrize(("sort", "durability"), [("journaled", "normal"), ("lying", "full")])
def test_without_a_sync_at_each_commit_a_power_cut_is_seen(
    tmp_path: Path, sort: Sort, durability: str
) -> None:
    storm = replace(
        STORMS["powercut"],
        strike=partial(cut, harsh=True),
        around=partial(powered, sort=sort, durability=durability, pages=10_000),
    )
    plan = Plan(jobs=60, faults=1, seconds=60, seed=11, workers=2)
    violations = run(storm, plan, tmp_path / "storm").violations
    assert any("was acknowledged and is lost" in violation for violation in violations), violations


def test_a_commit_that_failed_and_is_taken_for_done_is_seen(tmp_path: Path) -> None:
    plant = "tests.crash.planted_disk_bug:failed_commit_is_taken_for_done"
    plan = Plan(jobs=120, faults=2, seconds=60, seed=11, workers=2, calm=1, plant=plant)
    violations = run(STORMS["eio"], plan, tmp_path / "storm").violations
    message = "was taken; that attempt ended by claim"
    assert any(message in violation for violation in violations), violations
