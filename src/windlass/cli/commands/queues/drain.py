"""`windlass queues drain`: waits until queues are empty, with progress.

Waits for: the next update of `client.drain`. Guarantees: exit code 0 only if the queues are empty.
Stops: then, at the timeout, or by Ctrl-C. Only reads: workers run the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.client import Client
from windlass.core.duration import to_seconds
from windlass.core.query.drain_progress import DrainProgress

LINE_INTERVAL = 10.0  # seconds between lines, without a terminal
Report = Callable[[DrainProgress], None]


def drain(
    queues: Annotated[list[str], typer.Argument(help="Queue names.")],
    timeout: Annotated[
        str | None,
        typer.Option(help='Give up after this time, such as "10m"; the exit code is then 1.'),
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Wait until these queues are empty, including jobs enqueued meanwhile.

    Exit code 0 when they are empty. Held and scheduled jobs are ignored.
    Workers must be running: this command only waits.
    """
    limit = None if timeout is None else to_seconds(timeout, "timeout")
    last, empty = run(_drain(queues, limit, (url, app), as_json=as_json))
    if as_json:
        fields = {"queues": queues, "empty": empty, "left": last.left, "seconds": last.seconds}
        terminal.print_json(fields)
    elif empty:
        names, duration = ", ".join(queues), terminal.span(last.seconds)
        after = f" after {duration}" if last.peak else ""
        later = f"; {terminal.jobs(last.created)} held or scheduled" if last.created else ""
        terminal.info(f"Queues empty: {names}{after}{later}")
    else:
        terminal.error(f"{_left(last)} after {timeout}: {', '.join(queues)}")
    if not empty:
        raise typer.Exit(terminal.FAILED)


async def _drain(
    queues: list[str],
    limit: float | None,
    store: tuple[str | None, str | None],
    *,
    as_json: bool,
) -> tuple[DrainProgress, bool]:
    """Return the last progress, and whether the queues are empty."""
    console = terminal.out()
    last = DrainProgress(left=0, peak=0, running=0)
    reporting = _bar(console) if console.is_terminal and not as_json else _lines(quiet=as_json)
    async with open_client(*store) as client:
        with reporting as report:
            warned: set[str] = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    async for last in client.drain(*queues):
                        report(last)
                        await _warn(client, queues, last, warned)
                    return last, True
    return last, False


async def _warn(
    client: Client, queues: list[str], progress: DrainProgress, warned: set[str]
) -> None:
    """Warn once about each queue from which no job can start."""
    if not progress.left:
        return
    for name in set(progress.paused) - warned:
        warned.add(name)
        terminal.warn(f"queue {name} is paused; run windlass queues resume {name}")
    if not progress.running and (unchecked := set(queues) - warned):
        consumed = {
            queue for one in await client.workers() if one.accepts_jobs for queue in one.queues
        }
        for name in unchecked - consumed:
            warned.add(name)
            terminal.warn(
                f"No running worker consumes queue {name}; run windlass worker … -Q {name}"
            )


def _left(progress: DrainProgress) -> str:
    return f"{terminal.jobs(progress.left, capped=progress.capped)} left"


def _text(progress: DrainProgress) -> str:
    eta = progress.eta
    remaining = f", about {terminal.span(eta)} remaining" if eta and eta >= 1 else ""
    return f"{_left(progress)}, {progress.running:,} running{remaining}"


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[Report]:
    columns = BarColumn(bar_width=None), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, expand=True, transient=True) as bars:
        bar = bars.add_task("", total=None, note="")

        def report(progress: DrainProgress) -> None:
            done = progress.peak - progress.left
            bars.update(bar, total=progress.peak or 1, completed=done, note=_text(progress))

        yield report


@contextlib.contextmanager
def _lines(*, quiet: bool) -> Iterator[Report]:
    printed_at = -LINE_INTERVAL

    def report(progress: DrainProgress) -> None:
        nonlocal printed_at
        if not quiet and progress.left and progress.seconds - printed_at >= LINE_INTERVAL:
            printed_at = progress.seconds
            terminal.info(_text(progress))

    yield report
