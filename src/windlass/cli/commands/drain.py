"""`windlass queues drain`: wait until queues are empty, and show how far that is.

Waits for: the next look of `client.drain`. Guarantees: exit code 0 only when nothing was left.
Stops: then, at the timeout, or by Ctrl-C. It only reads: workers do the work.
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
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run
from windlass.client import Client
from windlass.core.duration import seconds
from windlass.core.query.queue_rates import Drain

EVERY = 10.0  # seconds between two lines, where there is no terminal
Tell = Callable[[Drain], None]


def drain(
    queues: Annotated[list[str], typer.Argument(help="The queues' names.")],
    timeout: Annotated[
        str | None, typer.Option(help="Wait no longer than this, as 90s or 10m; then exit code 1.")
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Wait until all that is in these queues has run, also what comes meanwhile.

    Exit code 0 when they are empty. What is held or for later is not waited
    for. Workers must be running: this only waits.
    """
    limit = None if timeout is None else seconds(timeout, "timeout")
    last, empty = run(_drain(queues, limit, (url, app), as_json=as_json))
    if as_json:
        facts = {"queues": queues, "empty": empty, "left": last.left, "seconds": last.seconds}
        terminal.print_json(facts)
    elif empty:
        names, took = ", ".join(queues), terminal.span(last.seconds)
        after = f", after {took}" if last.most else ""
        later = f"; {terminal.jobs(last.later)} held or for later" if last.later else ""
        terminal.say(f"nothing is in line or runs in {names}{after}{later}")
    else:
        terminal.complain(f"{_left(last)} after {timeout}: {', '.join(queues)}")
    if not empty:
        raise typer.Exit(terminal.FAILED)


async def _drain(
    queues: list[str],
    limit: float | None,
    place: tuple[str | None, str | None],
    *,
    as_json: bool,
) -> tuple[Drain, bool]:
    """The last look, and whether it found nothing."""
    console = terminal.out()
    last = Drain(left=0, most=0, running=0)
    telling = _bar(console) if console.is_terminal and not as_json else _lines(quiet=as_json)
    async with opened(*place) as client:
        with telling as tell:
            warned: set[str] = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    async for last in client.drain(*queues):
                        tell(last)
                        await _warn(client, queues, last, warned)
                    return last, True
    return last, False


async def _warn(client: Client, queues: list[str], look: Drain, warned: set[str]) -> None:
    """Each queue from which nothing will start is told once."""
    if not look.left:
        return
    for name in set(look.paused) - warned:
        warned.add(name)
        terminal.warn(f"queue {name} is paused, nothing starts: windlass queues resume {name}")
    if not look.running and (unknown := set(queues) - warned):
        taken = {queue for one in await client.workers() if one.takes_jobs for queue in one.queues}
        for name in unknown - taken:
            warned.add(name)
            terminal.warn(f"no live worker takes queue {name}: windlass worker … -Q {name}")


def _left(look: Drain) -> str:
    return f"{terminal.jobs(look.left, capped=look.capped)} left"


def _told(look: Drain) -> str:
    to_go = f", about {terminal.span(look.eta)} to go" if look.eta and look.eta >= 1 else ""
    return f"{_left(look)}, {look.running:,} running{to_go}"


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[Tell]:
    columns = BarColumn(bar_width=None), TextColumn("{task.fields[note]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, expand=True, transient=True) as progress:
        bar = progress.add_task("", total=None, note="")

        def tell(look: Drain) -> None:
            done = look.most - look.left
            progress.update(bar, total=look.most or 1, completed=done, note=_told(look))

        yield tell


@contextlib.contextmanager
def _lines(*, quiet: bool) -> Iterator[Tell]:
    said = -EVERY

    def tell(look: Drain) -> None:
        nonlocal said
        if not quiet and look.left and look.seconds - said >= EVERY:
            said = look.seconds
            terminal.say(_told(look))

    yield tell
