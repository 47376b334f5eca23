"""The storms: which fault, how often, over what kind of jobs; and the run of one of them.

A run has two parts: faults for as long as jobs are left (or until its time is up), then calm, in
which everything must come to its end. Then every process is stopped, and the checker looks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP

from benchmarks.chaos import checker
from benchmarks.chaos.evidence import gather, leftovers, unfinished
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.ledger import note
from benchmarks.chaos.processes import Mix
from benchmarks.chaos.report import Verdict, verdict

TICK = 0.05
SWEEP = 1.0  # how often a worker looks for lost leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How large a run is. `seconds` bounds the faults, `calm` the time to come to an end after.

    `plant` names a mistake to be made by every worker, to see whether the storm shows it.
    """

    jobs: int
    seconds: float
    seed: int
    workers: int = 4
    slots: int = 4
    calm: float = 120.0
    plant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """`strike` does one fault, `every` so many seconds. `burns` says that attempts may be lost."""

    name: str
    mix: Mix
    strike: Callable[[Fleet, float], None] | None = None
    every: float = 0.0
    lease: float = 1.5
    grace: float = 1.0
    producers: int = 2
    burns: bool = True


def _kill(fleet: Fleet, _: float) -> None:
    fleet.hurt(fleet.any_worker(), SIGKILL)


def _kill_all(fleet: Fleet, _: float) -> None:
    for process in (*fleet.workers, *fleet.producers.values()):
        if process.is_alive():
            fleet.hurt(process, SIGKILL)
    for process in (*fleet.workers, *fleet.producers.values()):
        process.join()
    note("driver", fleet.place, fault="of everything")


def _freeze(fleet: Fleet, lease: float) -> None:
    """Half of the workers sleep until the others have their jobs, and then go on as if nothing."""
    frozen = fleet.random.sample(fleet.workers, len(fleet.workers) // 2)
    for worker in frozen:
        fleet.hurt(worker, SIGSTOP)
    time.sleep(lease + 1.5 * SWEEP)
    for worker in frozen:
        fleet.hurt(worker, SIGCONT)


def _replace(fleet: Fleet, _: float) -> None:
    worker = fleet.any_worker()
    fleet.stop(worker)
    note("driver", fleet.place, fault="SIGTERM", pid=worker.pid)


_BOTH = {"work": 3, "stepped": 1}
STORMS = {
    storm.name: storm
    for storm in (
        Storm(
            name="kill",
            mix=Mix(tasks=_BOTH, seconds=(0.0, 0.3), pause=0.2),
            strike=_kill,
            every=0.2,
        ),
        Storm(
            name="tree",
            mix=Mix(tasks=_BOTH, seconds=(0.0, 0.2), pause=0.3),
            strike=_kill_all,
            every=1.5,
        ),
        Storm(
            name="freeze",
            mix=Mix(tasks={"work": 2, "stepped": 1, "blunt": 1}, seconds=(0.1, 0.4)),
            strike=_freeze,
            every=0.7,
        ),
        Storm(
            name="term",
            mix=Mix(tasks=_BOTH, seconds=(0.0, 0.4)),
            strike=_replace,
            every=0.4,
            lease=30.0,  # so that a machine that is slow burns nothing, either
            grace=0.1,
            burns=False,
        ),
        Storm(name="cancel", mix=Mix(tasks=_BOTH, cancels=0.7), lease=30.0),
        Storm(name="killer", mix=Mix(tasks={"innocent": 1}, once=("killer",)), producers=1),
    )
}


def run(storm: Storm, plan: Plan, place: Path) -> Verdict:
    """One storm in an empty directory, from the first process to the verdict."""
    for name in ("ledger", "register", "log", "data"):
        (place / name).mkdir(parents=True)
    facts = {"storm": storm.name, "lease": storm.lease, "burns": storm.burns, **asdict(plan)}
    (place / "plan.json").write_text(json.dumps(facts))
    fleet = Fleet(
        place,
        Random(plan.seed),
        storm.mix,
        jobs=plan.jobs,
        workers=plan.workers,
        producers=storm.producers,
        words=[f"-Qdefault={plan.slots}", f"--lease={storm.lease}s", f"--grace={storm.grace}s"],
        plant=plan.plant,
    )
    began = time.monotonic()
    try:
        _rage(storm, plan, fleet)
        complaints = _calm(fleet, plan.calm)
        complaints += fleet.end()
    finally:
        fleet.abandon()
    evidence = gather(place)
    return verdict(evidence, complaints + checker.check(evidence), time.monotonic() - began)


def _rage(storm: Storm, plan: Plan, fleet: Fleet) -> None:
    """Strike while jobs are left and there is time. What a strike killed is replaced at once."""
    fleet.begin()
    end = time.monotonic() + plan.seconds
    while time.monotonic() < end and not _done(fleet):
        struck = time.monotonic()
        while time.monotonic() < min(end, struck + max(storm.every, TICK)):
            time.sleep(TICK)
            fleet.fill()
        if storm.strike is not None and not _done(fleet):
            storm.strike(fleet, storm.lease)
            fleet.fill()


def _calm(fleet: Fleet, patience: float) -> list[str]:
    """Wait until every job has ended and left no workspace; answers what did not come."""
    deadline = time.monotonic() + patience
    while not _done(fleet) or leftovers(fleet.place):
        if time.monotonic() > deadline:
            what = "workspaces" if _done(fleet) else "jobs"
            return [f"{what} were left {patience:g} s after the last fault"]
        time.sleep(TICK)
        fleet.fill()
    return []


def _done(fleet: Fleet) -> bool:
    return fleet.produced and unfinished(fleet.place) == 0
