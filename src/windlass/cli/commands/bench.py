"""`windlass bench`: figures for Windlass and its peers on this machine, in one run."""

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

from windlass.bench.peers import OURS, OURS_ON_POSTGRES, PEERS
from windlass.bench.plan import GROUPS, Plan, Told
from windlass.bench.server import Server
from windlass.cli import terminal
from windlass.core.errors import InvalidArgumentError
from windlass.stores import public_url
from windlass.stores.urls import POSTGRES, split

TERMINATED = 128 + signal.SIGTERM


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Few jobs, short pauses.")] = False,
    only: Annotated[
        str | None, typer.Option(help=f"What to measure, of {','.join(GROUPS)}.")
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help=f"Whom to measure beside us, of {','.join(list(PEERS)[1:])}.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Jobs to work off in a drain (50000; quick: 5000).")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds, of which the median counts (3).")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="Measure us on this PostgreSQL server, in databases made for it."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every figure to this file, too.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where to keep the databases meanwhile: a real disk (here)."),
    ] = None,
) -> None:
    """Measure Windlass and its peers (those installed) side by side, each commit synced.

    All of it takes about half an hour, --quick about three minutes. It measures, it does not
    judge: the exit code is 0 whatever the figures are.
    """
    # What only this command needs is loaded here: other commands start without it.
    from windlass.bench.bench_run import measure  # noqa: PLC0415
    from windlass.bench.results import SQLITE  # noqa: PLC0415
    from windlass.cli.bench_table import show  # noqa: PLC0415

    plan = Plan.of(quick=quick, jobs=jobs, rounds=rounds, only=_words(only))
    chosen = _peers(peers) if url is None else _alone(peers)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise InvalidArgumentError(f"--json {json_file}: there is no such directory; make it first")
    servers, goals = _servers(url), SQLITE if url is None else ()
    with _place(directory or Path.cwd()) as place, _shown() as told:
        result = measure(plan, place, told, chosen, servers=servers, goals=goals)
    if json_file is not None:
        json_file.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    show(result)


def _words(given: str | None) -> list[str]:
    return [word.strip() for word in (given or "").split(",") if word.strip()]


def _peers(given: str | None) -> dict[str, str]:
    names = list(PEERS) if given is None else _words(given)
    unknown = sorted(set(names) - set(PEERS))
    if unknown:
        raise InvalidArgumentError(
            f"--peers names {', '.join(unknown)}; known are {', '.join(list(PEERS)[1:])}"
        )
    return {name: module for name, module in PEERS.items() if name == OURS or name in names}


def _alone(peers: str | None) -> dict[str, str]:
    """On PostgreSQL, for which the package has no peers."""
    if peers:
        raise InvalidArgumentError(
            "--peers are those on SQLite, and --url measures on PostgreSQL; "
            "leave one of them out (the project's repository has peers on PostgreSQL, too)"
        )
    return {OURS: OURS_ON_POSTGRES}


def _servers(url: str | None) -> dict[str, Server]:
    if url is None:
        return {}
    if split(url).scheme not in POSTGRES or find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            f"--url {public_url(url)}: write postgresql://user@host/database, "
            "and have asyncpg: pip install 'windlass[postgres]'"
        )
    from windlass.bench.postgres import Postgres  # noqa: PLC0415 - only where it is named

    return {"postgresql": Postgres(url)}


@contextlib.contextmanager
def _place(where: Path) -> Iterator[Path]:
    """A directory of our own there, removed at the end, also when we are told to end."""

    def end(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise typer.Exit(TERMINATED)

    try:
        where.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix="windlass-bench-", dir=where)
    except OSError as error:
        raise InvalidArgumentError(
            f"nothing can be written in {where}: {error}; name a --directory"
        ) from None
    with made as name:
        before = signal.signal(signal.SIGTERM, end)
        try:
            yield Path(name)
        finally:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _shown() -> Iterator[Told]:
    """A bar in a terminal, a line per step elsewhere."""
    console = terminal.err()
    if not console.is_terminal:
        yield lambda text, done, total: terminal.say(f"[{done}/{total}] {text}")
        return
    columns = (BarColumn(20), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(
            task, description=escape(text), completed=done, total=total
        )
