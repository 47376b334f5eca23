"""The storms by name, their standard sizes, and the run of one storm.

A run has two parts: faults while jobs are left (or until its time is over), then calm, in which
every job must end. Then all processes are stopped, and the checker runs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.chaos import faults
from benchmarks.chaos.bases import BASES
from benchmarks.chaos.checks import checker
from benchmarks.chaos.checks.evidence import gather, leftovers
from benchmarks.chaos.disk.storms import DISK_SIZES, DISK_STORMS
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.ledger import CALM
from benchmarks.chaos.processes import Mix
from benchmarks.chaos.report import Verdict, verdict
from benchmarks.chaos.storm import Plan, Storm
from benchmarks.chaos.streams import scene

__all__ = ["STANDARD_SIZES", "STORMS", "Plan", "Storm", "run"]
TICK = 0.05
HOUR = 3600.0
_BOTH = {"work": 3, "stepped": 1}
_AMONG = {"innocent": 24, "apart": 6}
_SERVED = Mix(tasks={"work": 2, "stepped": 1}, seconds=(0.0, 0.2), cancels=0.1)
_LIMITS: dict[str, dict[str, float]] = {
    "queue:default": {"concurrency": 8},
    "task:benchmarks.chaos.tasks.rated": {"starts": 8, "period": 0.5},
    "key:benchmarks.chaos.tasks.keyed": {"concurrency": 2},  # of 4 keys each
}

STORMS = {
    storm.name: storm
    for storm in (
        Storm(
            name="kill",
            mix=Mix(tasks=_BOTH),
            strike=faults.kill,
            counts="SIGKILL",
            every=0.1,
            sweepers=1,
        ),
        Storm(
            name="tree",
            mix=Mix(tasks=_BOTH, seconds=(0.0, 0.2)),
            strike=faults.kill_all,
            counts=faults.TREE,
            every=0.5,
            sweepers=1,
        ),
        Storm(
            name="freeze",
            mix=Mix(tasks={"work": 2, "stepped": 1, "blunt": 1}, seconds=(0.05, 0.2)),
            strike=faults.freeze,
            counts="SIGSTOP",
            hits=3,
            every=0.2,
            lease=1.0,
            sweepers=1,
        ),
        Storm(
            name="term",
            mix=Mix(tasks=_BOTH, seconds=(0.0, 0.4)),
            strike=faults.replace,
            counts="SIGTERM",
            every=0.2,
            lease=30.0,  # so that a machine that is slow burns nothing, either
            grace=0.1,
            burns=False,
        ),
        Storm(name="cancel", mix=Mix(tasks=_BOTH, cancels=0.7), lease=30.0, burns=False),
        Storm(
            name="lost-answers",
            mix=Mix(tasks={"work": 1, "stepped": 2}, cancels=0.1),
            strike=faults.replace,
            counts="SIGTERM",
            every=0.2,
            lost_calls=0.05,
            lease=30.0,
            sweepers=1,
            burns=False,
        ),
        Storm(name="killer", mix=Mix(tasks={"innocent": 1}, once=("killer",)), producers=1),
        Storm(
            name="segfault",
            mix=Mix(tasks=_AMONG | {"segfault": 1}, once=("segfault",)),
            lease=30.0,
            burns=False,
        ),
        Storm(
            name="oom",
            mix=Mix(tasks=_AMONG | {"glutton": 1}, once=("glutton",)),
            lease=30.0,
            burns=False,
        ),
        Storm(
            name="leak",
            # Slow, so that the memory of a worker is checked while it grows.
            mix=Mix(tasks={"innocent": 1, "leaky": 2}, seconds=(0.3, 0.7)),
            lease=30.0,
            burns=False,
            arguments=("--processes=1", "--max-memory=160M"),
        ),
        Storm(
            name="all",
            mix=Mix(tasks={"work": 3, "stepped": 3, "blunt": 1}, seconds=(0.0, 0.2), cancels=0.2),
            strike=faults.any_of_them,
            every=0.2,
            sweepers=1,
            lost_calls=0.05,
        ),
        Storm(
            name="restart",
            mix=_SERVED,
            strike=faults.crash_server,
            counts=faults.CRASH,
            every=3.0,
            lease=30.0,  # outlasts the recovery: then it may cost no attempt
            sweepers=1,
            burns=False,
            only="postgresql",
            own_server=True,
        ),
        Storm(
            name="backends",
            mix=_SERVED,
            strike=faults.end_backends,
            counts=faults.BACKEND,
            every=0.2,
            lease=30.0,
            sweepers=1,
            burns=False,
            only="postgresql",
        ),
        Storm(
            name="clocks",
            mix=Mix(tasks=_BOTH),
            strike=faults.kill,
            counts="SIGKILL",
            every=0.1,
            sweepers=1,
            skew=HOUR,
            only="postgresql",  # SQLite uses the clock of the writing process
        ),
        Storm(
            name="flow",
            mix=Mix(tasks={}, flow=True),
            strike=faults.kill,
            counts="SIGKILL",
            every=0.1,
            producers=1,
            sweepers=1,
        ),
        Storm(
            name="limit",
            mix=Mix(
                tasks={"work": 1, "rated": 1, "keyed": 2},
                seconds=(0.05, 0.25),
                cancels=0.1,
                limits=_LIMITS,
            ),
            strike=faults.kill_or_freeze,
            every=0.2,
            sweepers=1,
        ),
        Storm(
            name="streams",  # with twenty readers of each job
            mix=Mix(tasks={"log_writer": 1}, seconds=(1.0, 4.0), cancels=0.1),
            strike=scene.break_streams,
            every=0.5,
            sweepers=1,
            only="postgresql",
            around=scene.served,
        ),
        *(replace(storm, only="sqlite") for storm in DISK_STORMS.values()),
    )
}

# What must be shown of each, on a machine of two cores in half an hour.
STANDARD_SIZES = {
    "kill": Plan(jobs=50_000, faults=1000, seconds=HOUR, seed=0, slots=2),
    "tree": Plan(jobs=5000, faults=100, seconds=HOUR, seed=0),
    "freeze": Plan(jobs=10_000, faults=300, seconds=HOUR, seed=0, workers=6),
    "term": Plan(jobs=5000, faults=200, seconds=HOUR, seed=0),
    "cancel": Plan(jobs=7500, seconds=HOUR, seed=0),
    "lost-answers": Plan(jobs=10_000, faults=100, seconds=HOUR, seed=0),
    "killer": Plan(jobs=1001, seconds=HOUR, seed=0),
    "segfault": Plan(jobs=1000, seconds=HOUR, seed=0),
    "oom": Plan(jobs=1000, seconds=HOUR, seed=0),
    "leak": Plan(jobs=500, seconds=HOUR, seed=0, workers=2),
    "all": Plan(jobs=5000, faults=150, seconds=HOUR, seed=0),
    "restart": Plan(jobs=6000, faults=60, seconds=HOUR, seed=0),
    "backends": Plan(jobs=5000, faults=500, seconds=HOUR, seed=0),
    "clocks": Plan(jobs=5000, faults=200, seconds=HOUR, seed=0),
    "flow": Plan(jobs=60_001, faults=100, seconds=HOUR, seed=0, lease=15.0),
    "limit": Plan(jobs=6000, faults=200, seconds=HOUR, seed=0),
    "streams": Plan(jobs=250, seconds=HOUR, seed=0, workers=4, slots=25, connections=5000),
    **DISK_SIZES,
}


def run(
    storm: Storm, plan: Plan, place: Path, show: Callable[[Fleet], None] = lambda _: None
) -> Verdict:
    """Run one storm in an empty directory and check it.

    `show` is called many times a second with the progress.
    """
    for name in ("ledger", "register", "log", "data", "freeze"):
        (place / name).mkdir(parents=True)
    base = BASES[plan.store]
    base.prepare(place, plan.server)
    storm = replace(storm, lease=plan.lease or storm.lease)
    facts = {**asdict(plan), "storm": storm.name, "lease": storm.lease, "burns": storm.burns}
    facts["limits"] = storm.mix.limits
    (place / "plan.json").write_text(json.dumps({**facts, "began": base.now(place)}))
    try:
        return _run(storm, plan, Fleet(place, storm, plan), show)
    finally:
        base.forget(place)


def _run(storm: Storm, plan: Plan, fleet: Fleet, show: Callable[[Fleet], None]) -> Verdict:
    began = time.monotonic()
    with storm.around(fleet.place) as complaints:
        try:
            _rage(storm, plan, fleet, show)
            (fleet.place / CALM).touch()
            complaints.extend(_calm(fleet, plan.calm, show))
            complaints.extend(fleet.end())
        finally:
            fleet.abandon()
    evidence = gather(fleet.place)
    return verdict(evidence, complaints + checker.check(evidence), time.monotonic() - began)


def _rage(storm: Storm, plan: Plan, fleet: Fleet, show: Callable[[Fleet], None]) -> None:
    """Strike while jobs and time are left. Killed processes are replaced at once.

    With counted faults, each has its share of the jobs, and the last share follows them.
    """
    share = 0.0 if plan.faults is None else plan.jobs / (-(-plan.faults // fleet.hits) + 2)
    struck = 0
    fleet.allow(int(2 * share) if share else plan.jobs)
    fleet.begin()
    end = time.monotonic() + plan.seconds
    while _dealt(storm, fleet, struck) < (plan.faults or math.inf):
        if not _until_turn(storm, fleet, end, int(share * (struck + 0.5)), show):
            break
        assert storm.strike is not None
        storm.strike(fleet, storm.lease)
        struck += 1
        fleet.allow(int(share * (struck + 2)) if share else plan.jobs)
        fleet.fill()
    fleet.allow(plan.jobs)


def _dealt(storm: Storm, fleet: Fleet, struck: int) -> int:
    return fleet.faults[storm.counts] if storm.counts else struck


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
            storm.strike is not None
            and time.monotonic() >= turn
            and fleet.base.ended(fleet.place) >= needed
        ):
            return not _done(fleet)
    return False


def _calm(fleet: Fleet, patience: float, show: Callable[[Fleet], None]) -> list[str]:
    """Wait until every job has ended and left no workspace; return the problems.

    Waits as long as jobs still end.
    """
    ended, deadline = -1, 0.0
    while not _done(fleet) or leftovers(fleet.place, fleet.base):
        before, ended = ended, fleet.base.ended(fleet.place)
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
    return fleet.produced and fleet.base.unfinished(fleet.place) == 0
