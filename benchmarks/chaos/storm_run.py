"""Runs one storm and checks it.

A run has two parts: faults while jobs are left (or until its time is over), then a quiet phase, in
which every job must end. Then all processes are stopped, and the checker runs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.chaos.checks import checker
from benchmarks.chaos.checks.evidence import gather, leftovers
from benchmarks.chaos.ledger import QUIET
from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.report import StormResult, storm_result
from benchmarks.chaos.stores import STORES
from benchmarks.chaos.storm import Plan, Storm

TICK = 0.05


def run(
    storm: Storm, plan: Plan, directory: Path, show: Callable[[Fleet], None] = lambda _: None
) -> StormResult:
    """Run one storm in an empty directory and check it.

    `show` is called many times a second with the progress.
    """
    for name in ("ledger", "register", "log", "data", "freeze"):
        (directory / name).mkdir(parents=True)
    store = STORES[plan.store]
    store.prepare(directory, plan.server)
    storm = replace(storm, lease=plan.lease or storm.lease)
    facts = {
        **asdict(plan),
        "storm": storm.name,
        "lease": storm.lease,
        "may_lose_attempts": storm.may_lose_attempts,
    }
    facts["limits"] = storm.mix.limits
    (directory / "plan.json").write_text(json.dumps({**facts, "began": store.now(directory)}))
    try:
        return _run(storm, plan, Fleet(directory, storm, plan), show)
    finally:
        store.clean_up(directory)


def _run(storm: Storm, plan: Plan, fleet: Fleet, show: Callable[[Fleet], None]) -> StormResult:
    began = time.monotonic()
    with storm.around(fleet.directory) as problems:
        try:
            _run_faults(storm, plan, fleet, show)
            (fleet.directory / QUIET).touch()
            problems.extend(_wait_until_done(fleet, plan.quiet_timeout, show))
            problems.extend(fleet.end())
        finally:
            fleet.abandon()
    evidence = gather(fleet.directory)
    return storm_result(evidence, problems + checker.check(evidence), time.monotonic() - began)


def _run_faults(storm: Storm, plan: Plan, fleet: Fleet, show: Callable[[Fleet], None]) -> None:
    """Strike while jobs and time are left. Killed processes are replaced at once.

    With counted faults, each has its share of the jobs, and the last share follows them.
    """
    share = 0.0 if plan.faults is None else plan.jobs / (-(-plan.faults // fleet.hits) + 2)
    record_fault = 0
    fleet.allow(int(2 * share) if share else plan.jobs)
    fleet.begin()
    end = time.monotonic() + plan.seconds
    while _counted_faults(storm, fleet, record_fault) < (plan.faults or math.inf):
        if not _until_turn(storm, fleet, end, int(share * (record_fault + 0.5)), show):
            break
        assert storm.inject is not None
        storm.inject(fleet, storm.lease)
        record_fault += 1
        fleet.allow(int(share * (record_fault + 2)) if share else plan.jobs)
        fleet.fill()
    fleet.allow(plan.jobs)


def _counted_faults(storm: Storm, fleet: Fleet, record_fault: int) -> int:
    return fleet.faults[storm.counts] if storm.counts else record_fault


def _until_turn(
    storm: Storm, fleet: Fleet, end: float, needed: int, show: Callable[[Fleet], None]
) -> bool:
    """Wait for the next strike; False when there is none: all jobs have ended, or time is up."""
    turn = time.monotonic() + storm.every
    while time.monotonic() < end and not _done(fleet):
        time.sleep(TICK)
        fleet.fill()
        show(fleet)
        if (
            storm.inject is not None
            and time.monotonic() >= turn
            and fleet.store.ended_count(fleet.directory) >= needed
        ):
            return not _done(fleet)
    return False


def _wait_until_done(fleet: Fleet, patience: float, show: Callable[[Fleet], None]) -> list[str]:
    """Wait until every job has ended and left no workspace; return the problems.

    Waits as long as jobs still end.
    """
    ended, deadline = -1, 0.0
    while not _done(fleet) or leftovers(fleet.directory, fleet.store):
        before, ended = ended, fleet.store.ended_count(fleet.directory)
        if ended > before:
            deadline = time.monotonic() + patience
        if time.monotonic() > deadline:
            what = "workspaces" if _done(fleet) else "jobs"
            return [f"{what} were left {patience:g} s after the last fault, or the last end"]
        time.sleep(TICK)
        fleet.fill()
        show(fleet)
    return []


def _done(fleet: Fleet) -> bool:
    return fleet.produced and fleet.store.unfinished_count(fleet.directory) == 0
