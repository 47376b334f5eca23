"""Measures Windlass and its peers in one run, as ratios.

    python -m benchmarks.peers [--sqlite] [--quick] [--peers NAMES] [--only FIGURES] [--url URL]
                               [--json FILE]

With `--sqlite`, all systems use SQLite. Otherwise the run starts PostgreSQL 18 with its default
settings, fsync and synchronous_commit on, and redis-server if it is installed.
`--url` names another PostgreSQL server, whose user needs CREATEDB. Peers that are not installed are
skipped: pip install 'windlass[peers]' installs those in Python; npm installs those in JavaScript
when they are first measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers import SERVER_PEERS, SQLITE_PEERS, WINDLASS, load
from benchmarks.peers.comparison import compare
from benchmarks.peers.plan import GROUPS, BenchError, Plan
from benchmarks.peers.results import ComparisonResult
from benchmarks.peers.results_table import show_columns, show_rows
from benchmarks.peers.servers import DatabaseServer, postgres, redis
from benchmarks.peers.targets import SERVER_TARGETS, SQLITE_TARGETS
from windlass.stores import public_url

USAGE = 2  # exit code


def main(words: Sequence[str] | None = None) -> None:
    arguments = _arguments(words)
    try:
        result = _compare_systems(arguments)
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    show = show_columns if arguments.sqlite else show_rows
    show(result)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = f"of {', '.join(SERVER_PEERS)}; with --sqlite of {', '.join(SQLITE_PEERS)}"
    parser.add_argument("--sqlite", action="store_true", help="compare on SQLite, without servers")
    parser.add_argument("--quick", action="store_true", help="few jobs; not representative")
    parser.add_argument("--peers", help=f"{names}; windlass always")
    parser.add_argument("--only", default="", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--jobs", type=int, help="jobs per drain (50000; quick: 5000)")
    parser.add_argument("--rounds", type=int, help="rounds, of which the median is reported (3)")
    parser.add_argument("--url", help="a PostgreSQL server (default: WINDLASS_TEST_POSTGRES_URL)")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path.cwd(),
        help="directory of the databases; use a real disk (default: .)",
    )
    return parser.parse_args(words)


def _compare_systems(arguments: argparse.Namespace) -> ComparisonResult:
    plan, peers = _plan(arguments), _selected(arguments)
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        raise BenchError(f"--json {arguments.json}: the directory does not exist; create it first")
    targets = SQLITE_TARGETS if arguments.sqlite else SERVER_TARGETS
    with (
        _work_directory(arguments.directory) as directory,
        _servers(directory, arguments.url, peers) as (servers, absent),
    ):
        result = compare(plan, directory, _print_progress, peers, servers=servers, targets=targets)
    for name, module in peers.items():
        if name in result.skipped and load(module).server in absent:
            result.skipped[name] = absent[str(load(module).server)]
    return result


def _plan(arguments: argparse.Namespace) -> Plan:
    only = _split_names(arguments.only)
    plan = Plan.of(quick=arguments.quick, jobs=arguments.jobs, rounds=arguments.rounds, only=only)
    if plan.quick or arguments.sqlite:
        return plan
    # Many systems take long, so each idles for a shorter time but starts more jobs.
    return replace(plan, pause=25.0, idle=20.0, gap=0.25, starts=100)


def _selected(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.sqlite and arguments.url:
        raise BenchError("--url is a PostgreSQL server; remove it, or --sqlite")
    if arguments.url and not arguments.url.startswith(("postgres://", "postgresql://")):
        raise BenchError(f"--url {public_url(arguments.url)}: use postgresql://user@host/database")
    peers = SQLITE_PEERS if arguments.sqlite else SERVER_PEERS
    names = list(peers) if arguments.peers is None else _split_names(arguments.peers)
    unknown = sorted(set(names) - set(peers))
    if unknown:
        choices = ", ".join(name for name in peers if name != WINDLASS)
        raise BenchError(f"unknown --peers {', '.join(unknown)}; choose from {choices}")
    return {name: module for name, module in peers.items() if name in {WINDLASS, *names}}


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@contextlib.contextmanager
def _work_directory(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="windlass-peers-", dir=parent)
    except OSError as error:
        raise BenchError(f"cannot write in {parent}: {error}; set --directory") from None
    with directory as name:
        yield Path(name)


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
            known = url or os.environ.get("WINDLASS_TEST_POSTGRES_URL")
            try:
                running["postgresql"] = stack.enter_context(postgres(directory, known))
            except BenchError as error:
                if url is not None:
                    raise
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main()
