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
from benchmarks.chaos.disk.disk_config import DiskKind
from benchmarks.chaos.disk.full_disk import small_disk
from benchmarks.chaos.disk.power_cut import cut, journaled_disk
from benchmarks.chaos.report import StormResult
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.storm_catalog import STORMS
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow
Rage = Callable[..., StormResult]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(storm: Storm, *, jobs: int, faults: int) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{storm.name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, faults=faults, seconds=60, seed=seed, workers=2, slots=2)
        storm_result = run(storm, plan, tmp_path / storm.name)
        print(storm_result)  # noqa: T201
        assert storm_result.violations == []
        assert storm_result.ended == {"succeeded": storm_result.jobs}
        assert storm_result.jobs >= jobs
        return storm_result

    return storm


def test_no_power_cut_loses_an_acknowledged_write(rage: Rage) -> None:
    storm_result = rage(STORMS["powercut"], jobs=60, faults=2)
    assert storm_result.faults == {"power cut": 2}
    assert storm_result.crashes > 0


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "simulated"])
def test_a_full_disk_refuses_clearly_and_costs_nothing(rage: Rage, mounted: bool) -> None:
    quick = replace(STORMS["full"].mix, seconds=(0.0, 0.02), pause=0.05)
    storm = replace(STORMS["full"], mix=quick, context=partial(small_disk, mount=mounted))
    storm_result = rage(storm, jobs=240, faults=2)  # at the first of them there is more to enqueue
    if mounted and "disk full (a tmpfs)" not in storm_result.faults:
        pytest.skip("a small file system cannot be mounted here")
    assert sum(storm_result.faults.values()) == 2
    assert storm_result.repeated_calls > 0, "producers must have met it"
    assert storm_result.crashes == 0


def test_errors_of_the_disk_pass_and_cost_nothing(rage: Rage) -> None:
    storm_result = rage(STORMS["eio"], jobs=120, faults=3)
    assert any(fault.startswith("EIO") for fault in storm_result.faults)
    assert storm_result.crashes == 0


def test_a_worker_crash_at_a_sync_loses_nothing(rage: Rage) -> None:
    storm_result = rage(STORMS["fsync-kill"], jobs=80, faults=2)
    assert sum(storm_result.faults.values()) >= 1


# -- planted bugs


@pytest.mark.parametrize(("kind", "durability"), [("journaled", "normal"), ("lying", "full")])
def test_without_a_sync_at_each_commit_a_power_cut_is_seen(
    tmp_path: Path, kind: DiskKind, durability: str
) -> None:
    storm = replace(
        STORMS["powercut"],
        inject=partial(cut, harsh=True),
        context=partial(journaled_disk, kind=kind, durability=durability, pages=10_000),
    )
    plan = Plan(jobs=60, faults=1, seconds=60, seed=11, workers=2)
    violations = run(storm, plan, tmp_path / "storm").violations
    assert any("was acknowledged and is lost" in violation for violation in violations), violations


def test_a_commit_that_failed_and_is_taken_for_done_is_seen(tmp_path: Path) -> None:
    plant = "tests.crash.planted_disk_bug:failed_commit_is_taken_for_done"
    plan = Plan(jobs=120, faults=2, seconds=60, seed=11, workers=2, quiet_timeout=1, plant=plant)
    violations = run(STORMS["eio"], plan, tmp_path / "storm").violations
    message = "was applied; the attempt ended by claim"
    assert any(message in violation for violation in violations), violations
