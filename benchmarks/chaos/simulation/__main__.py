"""Command line of the simulation: runs seeds until enough jobs have ended."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom

from benchmarks.chaos.simulation.checks import check
from benchmarks.chaos.simulation.run import FAULTS, Plan, simulate

JOBS_PER_RUN = 1000
MAX_SHOWN = 5  # violations per run


@dataclass
class Totals:
    """Totals of all runs."""

    jobs: int = 0
    runs: int = 0
    steps: int = 0
    calls: int = 0
    attempts: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    violations: dict[int, list[str]] = field(default_factory=dict)  # by seed

    def add(self, other: Totals) -> None:
        for name in ("jobs", "runs", "steps", "calls", "attempts", "virtual_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.violations |= other.violations

    def __str__(self) -> str:
        faults = ", ".join(f"{count:,} {name}" for name, count in sorted(self.faults.items()))
        bound = f"at most {3 / self.jobs:.1e} of all jobs are affected by such faults (3/n, 95 %)"
        return (
            f"{self.jobs:,} jobs in {self.runs:,} runs: {self.attempts:,} attempts, "
            f"{self.calls:,} calls of the store, {self.steps:,} steps, "
            f"{self.virtual_seconds / 3600:.1f} h of virtual time; faults: {faults}; "
            f"{sum(map(len, self.violations.values()))} violations"
            + ("" if self.violations else f": {bound}")
        )


def run_one(seed: int, faults: tuple[str, ...] = FAULTS) -> Totals:
    """Run one simulation and check it."""
    logging.getLogger("windlass").setLevel(logging.CRITICAL)  # workers log every fault
    simulation = simulate(seed, Plan(jobs=JOBS_PER_RUN, faults=faults))
    violations = asyncio.run(check(simulation))
    calls = simulation.history.calls
    return Totals(
        jobs=len(calls),
        runs=1,
        steps=simulation.world.steps,
        calls=sum(map(len, calls.values())),
        attempts=sum(line.phase == "start" for line in simulation.tasks.ledger),
        virtual_seconds=simulation.world.now,
        faults=simulation.faults,
        violations={seed: violations} if violations else {},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos.simulation", description=__doc__
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="number of jobs of all runs")
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    parser.add_argument(
        "--runs", type=int, help="number of runs, instead of --jobs; 1 repeats the seed"
    )
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, separated by commas")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures for programs")
    given = parser.parse_args()
    faults = tuple(name for name in given.faults.split(",") if name)
    if unknown := sorted({*faults} - {*FAULTS}):
        parser.error(f"unknown faults: {', '.join(unknown)}; choose from {', '.join(FAULTS)}")
    runs = given.runs or max(1, -(-given.jobs // JOBS_PER_RUN))
    found = _all(given.seed, runs, faults, given.processes)
    print(found)
    for seed, violations in found.violations.items():
        print(f"\nseed {seed} (--seed {seed} --runs 1):")
        print("\n".join(f"- {violation}" for violation in violations[:MAX_SHOWN]))
    if given.json:
        given.json.write_text(json.dumps(vars(found), indent=2))
    if found.violations:
        sys.exit(1)


def _all(first: int, runs: int, faults: tuple[str, ...], processes: int) -> Totals:
    found, began, reported = Totals(), time.monotonic(), 0.0
    # A run makes thousands of reference cycles; rare collections save an eighth of its time.
    collect_rarely = partial(gc.set_threshold, 20_000)
    with ProcessPoolExecutor(min(processes, runs), initializer=collect_rarely) as pool:
        running = [pool.submit(run_one, seed, faults) for seed in range(first, first + runs)]
        for done in as_completed(running):
            found.add(done.result())
            if (elapsed := time.monotonic() - began) > reported + 10:
                reported = elapsed
                print(f"{elapsed:.0f} s: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
