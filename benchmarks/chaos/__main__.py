"""Storms of faults over real processes on SQLite, and what the independent checker says of them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom

from benchmarks.chaos.report import markdown
from benchmarks.chaos.storms import STORMS, Plan, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--faults", default=",".join(STORMS), help="which storms, in this order")
    parser.add_argument("--jobs", type=int, default=1000, help="of each storm")
    parser.add_argument("--minutes", type=float, default=1.0, help="of faults, for each storm")
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures for programs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave tables and ledgers there")
    given = parser.parse_args()
    names = given.faults.split(",")
    if unknown := sorted({*names} - {*STORMS}):
        parser.error(f"unknown faults: {', '.join(unknown)}; known are {', '.join(STORMS)}")
    if given.keep and (there := [name for name in names if (given.keep / name).exists()]):
        parser.error(f"{given.keep} holds a run of {', '.join(there)}; name another directory")
    plan = Plan(jobs=given.jobs, seconds=60 * given.minutes, seed=given.seed)
    verdicts = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            print(f"{name}: {plan.jobs} jobs, seed {plan.seed} …", file=sys.stderr, flush=True)
            verdicts.append(run(STORMS[name], plan, (given.keep or Path(scratch)) / name))
    print(markdown(verdicts))
    if given.json:
        given.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    if any(verdict.violations for verdict in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
