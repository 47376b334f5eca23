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

CHECK_INTERVAL = 0.05


def run(
    storm: Storm,
    plan: Plan,
    directory: Path,
    show_progress: Callable[[Fleet], None] = lambda _: None,
) -> StormResult:
    """Run one storm in an empty directory and check it.

    `show_progress` is called many times a second.
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
        return _run(storm, plan, Fleet(directory, storm, plan), show_progress)
    finally:
        store.clean_up(directory)


def _run(
    storm: Storm, plan: Plan, fleet: Fleet, show_progress: Callable[[Fleet], None]
) -> StormResult:
    began = time.monotonic()
    with storm.context(fleet.directory) as problems:
        try:
            _run_faults(storm, plan, fleet, show_progress)
            (fleet.directory / QUIET).touch()
            problems.extend(_wait_until_done(fleet, plan.quiet_timeout, show_progress))
            problems.extend(fleet.end())
        finally:
            fleet.abandon()
    evidence = gather(fleet.directory)
    return storm_result(evidence, problems + checker.check(evidence), time.monotonic() - began)


def _run_faults(
    storm: Storm, plan: Plan, fleet: Fleet, show_progress: Callable[[Fleet], None]
) -> None:
    """Inject faults while jobs and time are left. Killed processes are replaced at once.

    With counted faults, each has its share of the jobs, and the last share follows them.
    """
    share = (
        0.0
        if plan.faults is None
        else plan.jobs / (-(-plan.faults // fleet.faults_per_injection) + 2)
    )
    injections = 0
    fleet.allow(int(2 * share) if share else plan.jobs)
    fleet.start()
    end = time.monotonic() + plan.seconds
    while _counted_faults(storm, fleet, injections) < (plan.faults or math.inf):
        if not _wait_for_next_fault(
            storm, fleet, end, int(share * (injections + 0.5)), show_progress
        ):
            break
        assert storm.inject is not None
        storm.inject(fleet, storm.lease)
        injections += 1
        fleet.allow(int(share * (injections + 2)) if share else plan.jobs)
        fleet.fill()
    fleet.allow(plan.jobs)


def _counted_faults(storm: Storm, fleet: Fleet, injections: int) -> int:
    return fleet.faults[storm.counted_fault] if storm.counted_fault else injections


def _wait_for_next_fault(
    storm: Storm, fleet: Fleet, end: float, needed: int, show_progress: Callable[[Fleet], None]
) -> bool:
    """Return False if no fault follows: all jobs have ended, or time is up."""
    next_at = time.monotonic() + storm.interval
    while time.monotonic() < end and not _done(fleet):
        time.sleep(CHECK_INTERVAL)
        fleet.fill()
        show_progress(fleet)
        if (
            storm.inject is not None
            and time.monotonic() >= next_at
            and fleet.store.ended_count(fleet.directory) >= needed
        ):
            return not _done(fleet)
    return False


def _wait_until_done(
    fleet: Fleet, timeout: float, show_progress: Callable[[Fleet], None]
) -> list[str]:
    """Wait until every job has ended and left no workspace; return the problems.

    The timeout starts again whenever a job ends.
    """
    ended, deadline = -1, 0.0
    while not _done(fleet) or leftovers(fleet.directory, fleet.store):
        before, ended = ended, fleet.store.ended_count(fleet.directory)
        if ended > before:
            deadline = time.monotonic() + timeout
        if time.monotonic() > deadline:
            what = "workspaces" if _done(fleet) else "jobs"
            return [f"{what} are left {timeout:g} s after the last progress"]
        time.sleep(CHECK_INTERVAL)
        fleet.fill()
        show_progress(fleet)
    return []


def _done(fleet: Fleet) -> bool:
    return fleet.produced and fleet.store.unfinished_count(fleet.directory) == 0
