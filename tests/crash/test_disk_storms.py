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
RunStorm = Callable[..., StormResult]


@pytest.fixture
def run_storm(tmp_path: Path) -> RunStorm:
    def run_and_check(storm: Storm, *, jobs: int, faults: int) -> StormResult:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{storm.name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, faults=faults, seconds=60, seed=seed, workers=2, slots=2)
        result = run(storm, plan, tmp_path / storm.name)
        print(result)  # noqa: T201
        assert result.violations == []
        assert result.ended == {"succeeded": result.jobs}
        assert result.jobs >= jobs
        return result

    return run_and_check


def test_no_power_cut_loses_an_acknowledged_write(run_storm: RunStorm) -> None:
    result = run_storm(STORMS["powercut"], jobs=60, faults=2)
    assert result.faults == {"power cut": 2}
    assert result.crashes > 0


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "simulated"])
def test_a_full_disk_raises_a_clear_error_and_costs_no_attempt(
    run_storm: RunStorm, mounted: bool
) -> None:
    quick = replace(STORMS["full"].mix, seconds=(0.0, 0.02), pause=0.05)
    storm = replace(STORMS["full"], mix=quick, context=partial(small_disk, mount=mounted))
    result = run_storm(
        storm, jobs=240, faults=2
    )  # at the first fault, jobs are still being enqueued
    if mounted and "disk full (a tmpfs)" not in result.faults:
        pytest.skip("a small file system cannot be mounted here")
    assert sum(result.faults.values()) == 2
    assert result.repeated_calls > 0, "no call of a producer failed"
    assert result.crashes == 0


def test_temporary_disk_errors_cost_no_attempt(run_storm: RunStorm) -> None:
    result = run_storm(STORMS["eio"], jobs=120, faults=3)
    assert any(fault.startswith("EIO") for fault in result.faults)
    assert result.crashes == 0


def test_a_worker_crash_at_a_sync_loses_nothing(run_storm: RunStorm) -> None:
    result = run_storm(STORMS["fsync-kill"], jobs=80, faults=2)
    assert sum(result.faults.values()) >= 1


# -- planted bugs


@pytest.mark.parametrize(("kind", "durability"), [("journaled", "normal"), ("lying", "full")])
def test_a_power_cut_reveals_commits_without_a_sync(
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


def test_a_failed_commit_that_is_reported_as_done_is_detected(tmp_path: Path) -> None:
    plant = "tests.crash.planted_disk_bug:failed_commit_is_reported_as_done"
    plan = Plan(jobs=120, faults=2, seconds=60, seed=11, workers=2, quiet_timeout=1, plant=plant)
    violations = run(STORMS["eio"], plan, tmp_path / "storm").violations
    message = "was applied; the attempt ended by claim"
    assert any(message in violation for violation in violations), violations
