"""`windlass queues`: how much waits in each, and pausing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.opening import AppPath, AsJson, Url, opened, run
from windlass.core.state import State
from windlass.store import QueueStats

commands = typer.Typer(no_args_is_help=True, help="See how much waits, pause and resume queues.")
Queues = Annotated[list[str], typer.Argument(help="The queues' names.")]
_COUNTED = (State.QUEUED, State.RUNNING, State.RETRYING, State.CREATED)


@commands.command("list")
def list_queues(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the queues that have jobs to do or are paused."""
    stats = run(_stats(url, app))
    if as_json:
        terminal.print_json([_facts(name, one) for name, one in stats.items()])
        return
    if not stats:
        terminal.say("nothing waits or runs in any queue")
        return
    table = terminal.table("queue", *(state.value for state in _COUNTED), "oldest", "")
    for name, one in stats.items():
        oldest = "" if one.oldest_queued_at is None else terminal.ago(one.oldest_queued_at)
        counts = [_count(one, state) for state in _COUNTED]
        table.add_row(escape(name), *counts, oldest, "[yellow]paused[/]" if one.paused else "")
    terminal.out().print(table)


async def _stats(url: str | None, app: str | None) -> Mapping[str, QueueStats]:
    async with opened(url, app) as client:
        return await client.store.stats()


def _count(one: QueueStats, state: State) -> str:
    number = one.counts.get(state, 0)
    return f"{number:,}+" if state in one.capped else f"{number:,}"


def _facts(name: str, one: QueueStats) -> dict[str, object]:
    return {
        "queue": name,
        "paused": one.paused,
        "counts": {state.value: one.counts.get(state, 0) for state in _COUNTED},
        "capped": sorted(state.value for state in one.capped),
        "oldestQueuedAt": terminal.iso(one.oldest_queued_at),
    }


@commands.command()
def pause(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Hand out no more jobs of these queues. Running jobs are left alone."""
    _set(queues, (url, app), paused=True, as_json=as_json)


@commands.command()
def resume(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Hand out jobs of these queues again."""
    _set(queues, (url, app), paused=False, as_json=as_json)


def _set(
    queues: list[str], place: tuple[str | None, str | None], *, paused: bool, as_json: bool
) -> None:
    run(_pause(queues, place, paused=paused))
    if as_json:
        terminal.print_json([{"queue": name, "paused": paused} for name in queues])
        return
    console = terminal.out()
    for name in queues:
        console.print(f"{escape(name)} {'paused' if paused else 'goes on'}", soft_wrap=True)


async def _pause(queues: list[str], place: tuple[str | None, str | None], *, paused: bool) -> None:
    async with opened(*place) as client:
        await client.store.pause(queues, paused=paused)
