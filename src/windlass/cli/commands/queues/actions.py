"""`windlass queues pause|resume|clear`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.job.state import WAITING
from windlass.schemas.queues import PausedView

Queues = Annotated[list[str], typer.Argument(help="Queue names.")]


def pause(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Pause queues: workers claim no more of their jobs. Running jobs continue."""
    _set_paused(queues, (url, app), paused=True, as_json=as_json)


def resume(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume paused queues."""
    _set_paused(queues, (url, app), paused=False, as_json=as_json)


def _set_paused(
    queues: list[str], store: tuple[str | None, str | None], *, paused: bool, as_json: bool
) -> None:
    run(_pause(queues, store, paused=paused))
    if as_json:
        views = [PausedView(name=name, paused=paused) for name in queues]
        terminal.print_json([view.to_json() for view in views])
        return
    console = terminal.out()
    for name in queues:
        console.print(f"{escape(name)} {'paused' if paused else 'resumed'}", soft_wrap=True)


async def _pause(queues: list[str], store: tuple[str | None, str | None], *, paused: bool) -> None:
    async with open_client(*store) as client:
        await client.pause(queues, paused=paused)


def clear(
    queue: Annotated[str, typer.Argument(help="Queue name.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    reason: Annotated[str | None, typer.Option(help="Stored with each job.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel all waiting jobs of a queue: queued, scheduled, held and retrying.

    Running jobs continue.
    """
    if not yes:
        waiting = run(_waiting(queue, (url, app)))
        if waiting and not typer.confirm(f"Cancel {waiting} in {queue}?", err=True):
            terminal.info("Nothing canceled")
            raise typer.Exit(terminal.FAILED)
    canceled = run(_clear(queue, reason, (url, app)))
    if as_json:
        terminal.print_json({"name": queue, "canceled": canceled})
    elif canceled:
        terminal.out().print(f"{escape(queue)}: {terminal.jobs(canceled)} canceled", soft_wrap=True)
    else:
        terminal.info(f"No jobs waiting in {queue}")


async def _waiting(queue: str, store: tuple[str | None, str | None]) -> str:
    """Return the number of waiting jobs as text; empty if there are none."""
    async with open_client(*store) as client:
        found = (await client.store.insights.stats()).get(queue)
    if found is None:
        return ""
    number = sum(found.counts.get(state, 0) for state in WAITING)
    return terminal.jobs(number, capped=bool(found.capped & WAITING)) if number else ""


async def _clear(queue: str, reason: str | None, store: tuple[str | None, str | None]) -> int:
    async with open_client(*store) as client:
        return await client.clear(queue, reason=reason or "the queue was cleared")
