"""`windlass bench`: measures Windlass and its peers on this machine."""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from windlass.bench.adapters import PEERS, WINDLASS, WINDLASS_ON_POSTGRES
from windlass.bench.database_server import DatabaseServer
from windlass.bench.plan import GROUPS, Plan, ProgressCallback
from windlass.cli import terminal
from windlass.core.errors import InvalidArgumentError
from windlass.stores import public_url
from windlass.stores.urls import POSTGRES, split

TERMINATED = 128 + signal.SIGTERM


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Few jobs and short pauses.")] = False,
    only: Annotated[str | None, typer.Option(help=f"What to measure: {','.join(GROUPS)}.")] = None,
    peers: Annotated[
        str | None, typer.Option(help=f"Systems to compare: {','.join(list(PEERS)[1:])}.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Jobs per drain (50000; quick: 5000).")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of rounds; the median is reported (3).")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Measure Windlass on this PostgreSQL server, in temporary databases."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every figure to this file.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Directory of the databases; use a real disk (default: .)."),
    ] = None,
) -> None:
    """Compare Windlass with the installed peers; every commit is synced to disk.

    A full run takes 30 to 45 minutes, --quick about three minutes. The exit
    code is 0 for any result.
    """
    # Imported here, so that other commands start faster.
    from windlass.bench.comparison import compare  # noqa: PLC0415
    from windlass.bench.targets import SQLITE_TARGETS  # noqa: PLC0415
    from windlass.cli.bench_table import show  # noqa: PLC0415

    plan = Plan.of(quick=quick, jobs=jobs, rounds=rounds, only=_split_names(only))
    chosen = _chosen_peers(peers) if url is None else _no_peers(peers)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise InvalidArgumentError(
            f"--json {json_file}: the directory does not exist; create it first"
        )
    servers, targets = _servers(url), SQLITE_TARGETS if url is None else ()
    with _work_directory(directory or Path.cwd()) as folder, _progress() as on_progress:
        result = compare(plan, folder, on_progress, chosen, servers=servers, targets=targets)
    if json_file is not None:
        json_file.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    show(result)


def _split_names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _chosen_peers(text: str | None) -> dict[str, str]:
    names = list(PEERS) if text is None else _split_names(text)
    unknown = sorted(set(names) - set(PEERS))
    if unknown:
        raise InvalidArgumentError(
            f"unknown --peers {', '.join(unknown)}; choose from {', '.join(list(PEERS)[1:])}"
        )
    return {name: module for name, module in PEERS.items() if name == WINDLASS or name in names}


def _no_peers(peers: str | None) -> dict[str, str]:
    """Return Windlass only: the package has no peers on PostgreSQL."""
    if peers:
        raise InvalidArgumentError(
            "--peers work with SQLite only, and --url measures PostgreSQL; "
            "remove one of them (the project's repository has peers on PostgreSQL)"
        )
    return {WINDLASS: WINDLASS_ON_POSTGRES}


def _servers(url: str | None) -> dict[str, DatabaseServer]:
    if url is None:
        return {}
    if split(url).scheme not in POSTGRES or find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            f"--url {public_url(url)}: use postgresql://user@host/database, "
            "and install asyncpg: pip install 'windlass[postgres]'"
        )
    from windlass.bench.postgres_server import PostgresServer  # noqa: PLC0415 - optional package

    return {"postgresql": PostgresServer(url)}


@contextlib.contextmanager
def _work_directory(parent: Path) -> Iterator[Path]:
    """Create a temporary directory, removed at the end and on SIGTERM."""

    def exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise typer.Exit(TERMINATED)

    try:
        parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=parent)
    except OSError as error:
        raise InvalidArgumentError(f"cannot write in {parent}: {error}; set --directory") from None
    with directory as name:
        previous = signal.signal(signal.SIGTERM, exit_on_signal)
        try:
            yield Path(name)
        finally:
            signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Show a bar in a terminal, a line per step elsewhere."""
    console = terminal.err()
    if not console.is_terminal:
        yield lambda text, done, total: terminal.info(f"[{done}/{total}] {text}")
        return
    columns = (BarColumn(20), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(
            task, description=escape(text), completed=done, total=total
        )
