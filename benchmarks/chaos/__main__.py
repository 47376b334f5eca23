"""Command line of the storms: runs them and prints the result of the checker."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom

from benchmarks.chaos.progress import Progress
from benchmarks.chaos.report import StormResult, markdown
from benchmarks.chaos.stores import STORES
from benchmarks.chaos.stores.local_postgres import NoServerError
from benchmarks.chaos.storm import Plan
from benchmarks.chaos.storm_catalog import HOUR, STANDARD_SIZES, STORMS
from benchmarks.chaos.storm_run import run

MAX_WORKERS = 64
SPARE_FILES = 200
CONNECTIONS, READERS_PER_JOB = 2000, 20  # of the storm streams
URL = "WINDLASS_TEST_POSTGRES_URL"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(arguments)
    plans = _plans(parser, given)
    results: list[StormResult] = []
    try:
        _run_all(given, plans, results)
    except NoServerError as error:
        parser.error(str(error))
    print(markdown(results))
    if any(storm_result.violations for storm_result in results):
        sys.exit(1)


def _run_all(given: Namespace, plans: dict[str, Plan], results: list[StormResult]) -> None:
    with tempfile.TemporaryDirectory(prefix="chaos-") as scratch:
        directory = given.keep or Path(scratch)
        for name, plan in plans.items():
            results.append(_run(name, plan, directory / name))
            _write(given.json, results)  # keeps the results of an interrupted run


def _run(name: str, plan: Plan, directory: Path) -> StormResult:
    faults = "" if plan.faults is None else f", {plan.faults:,} faults"
    print(f"{name}: {plan.jobs:,} jobs{faults}, seed {plan.seed}", file=sys.stderr, flush=True)
    progress = Progress(STORMS[name], plan)
    result = run(STORMS[name], plan, directory, progress)
    progress.end()
    message = f"{name}: {len(result.violations)} violations after {result.seconds:g} s"
    print(message, file=sys.stderr, flush=True)
    return result


def _write(path: Path | None, results: list[StormResult]) -> None:
    if path is not None:
        path.write_text(
            json.dumps([storm_result.fields() for storm_result in results], indent=2) + "\n"
        )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--store", default="sqlite", choices=[*STORES], help="store of the jobs")
    parser.add_argument(
        "--url",
        help="with --store postgresql: a server whose user may create databases; default: a new "
        f"local server (also {URL})",
    )
    parser.add_argument(
        "--faults",
        type=_names,
        metavar="STORM,…",
        help=f"the storms to run, in this order: {', '.join(STORMS)}",
    )
    parser.add_argument("--full-size", action="store_true", help="the sizes of the proof report")
    parser.add_argument(
        "--part", type=_part, metavar="0.1", help="with --full-size: this fraction of each size"
    )
    parser.add_argument("--jobs", type=_number, help="jobs of each storm (1000)")
    parser.add_argument(
        "--kills",
        type=_number,
        metavar="N",
        help="number of faults of each storm (kills, freezes, replacements), spread over its jobs",
    )
    parser.add_argument("--minutes", type=_minutes, help="time of the faults of each storm (1)")
    parser.add_argument(
        "--connections",
        type=_number,
        metavar="N",
        help="number of readers of the storm streams (2000)",
    )
    parser.add_argument("--workers", type=_number, help="number of workers (4)")
    parser.add_argument(
        "--seed",
        type=int,
        default=SystemRandom().getrandbits(32),
        help="repeats the random choices",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep tables and ledgers there")
    return parser


def _plans(parser: ArgumentParser, given: Namespace) -> dict[str, Plan]:
    """Return the plans by storm name; exit if the options are invalid."""
    sizes = {
        "jobs": given.jobs, "kills": given.kills, "minutes": given.minutes,
        "connections": given.connections,
    }  # fmt: skip
    sized = [f"--{name}" for name, value in sizes.items() if value is not None]
    if given.full_size and sized:
        parser.error(f"--full-size sets all sizes: omit {', '.join(sized)}")
    if given.part is not None and not given.full_size:
        parser.error("--part needs --full-size; use --jobs and --kills otherwise")
    if given.workers is not None and not 2 <= given.workers <= MAX_WORKERS:
        parser.error(f"--workers is {given.workers}; it must be from 2 to {MAX_WORKERS}")
    given.url = _server(parser, given)
    given.faults = _select_storms(parser, given)
    if given.keep and (existing := [name for name in given.faults if (given.keep / name).exists()]):
        parser.error(f"{given.keep} has a run of {', '.join(existing)}; use another directory")
    if given.json and not given.json.absolute().parent.is_dir():
        parser.error(f"--json {given.json}: the directory does not exist")
    if given.connections and not any(STANDARD_SIZES[name].connections for name in given.faults):
        parser.error("--connections needs the storm streams")
    _check_files(parser, given)
    common = {"seed": given.seed, "store": given.store, "server": given.url}
    if given.workers is not None:
        common["workers"] = given.workers
    return {name: replace(_plan(name, given), **common) for name in given.faults}


def _check_files(parser: ArgumentParser, given: Namespace) -> None:
    """Exit if the limit of open files is too low for one socket per reader."""
    readers = [_plan(name, given).connections for name in given.faults]
    needed = max(readers, default=0) + SPARE_FILES
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if any(readers) and hard != resource.RLIM_INFINITY and hard < needed:
        parser.error(
            f"{max(readers)} connections need {needed} open files in one process; the "
            f"limit is {hard}: run ulimit -Hn {needed} as root, or use fewer --connections"
        )


def _server(parser: ArgumentParser, given: Namespace) -> str | None:
    if given.store == "postgresql":
        return given.url or os.environ.get(URL) or None
    if given.url is not None:
        parser.error(f"--url needs --store postgresql, not {given.store}")
    return None


def _select_storms(parser: ArgumentParser, given: Namespace) -> list[str]:
    """Return the selected storms, or all that fit; exit if a selected one does not fit."""
    for_store = [name for name, storm in STORMS.items() if storm.only_store in {None, given.store}]
    available = [
        name for name in for_store if given.url is None or not STORMS[name].needs_own_server
    ]
    for name in given.faults or ():
        if name not in for_store:
            only = STORMS[name].only_store
            parser.error(f"{name} needs --store {only}, not {given.store}")
        if name not in available:
            parser.error(f"{name} crashes its server: remove --url ({URL}), or the storm")
    return given.faults or available


def _plan(name: str, given: Namespace) -> Plan:
    if given.full_size:
        return (
            STANDARD_SIZES[name] if given.part is None else STANDARD_SIZES[name].scaled(given.part)
        )
    fault_count = given.kills if STORMS[name].inject is not None else None
    seconds = 60 * (given.minutes or 1) if fault_count is None or given.minutes else HOUR
    standard = STANDARD_SIZES[name]
    plan = Plan(
        jobs=given.jobs or 1000,
        seconds=seconds,
        faults=fault_count,
        workers=standard.workers,
        seed=0,
    )
    if not standard.connections:
        return plan
    connections = given.connections or CONNECTIONS
    jobs = given.jobs or -(-connections // READERS_PER_JOB)
    seconds = (
        plan.seconds if given.minutes else standard.seconds
    )  # the number of its faults is fixed
    return replace(plan, jobs=jobs, connections=connections, seconds=seconds, slots=standard.slots)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    if unknown := [name for name in names if name not in STORMS]:
        known = ", ".join(STORMS)
        raise argparse.ArgumentTypeError(f"unknown storm {unknown[0]!r}; choose from {known}")
    return names


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _minutes(text: str) -> float:
    return _positive(text, "minutes")


def _part(text: str) -> float:
    part = _positive(text, "part")
    if part > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1; use a fraction like 0.1")
    return part


def _positive(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{what} must be more than 0, not {text!r}")
    return value


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # runs the cleanup of processes and servers
    main()
