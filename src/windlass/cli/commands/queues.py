"""`windlass queues`: depth and rates of queues; pause, drain, clear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.commands.drain import drain
from windlass.cli.store_options import AppPath, AsJson, Url, open_client, run
from windlass.core.job.state import WAITING, State
from windlass.insights.queue_overview import Queue

commands = typer.Typer(no_args_is_help=True, help="List, pause, resume, drain and clear queues.")
commands.command("drain")(drain)
Queues = Annotated[list[str], typer.Argument(help="Queue names.")]
_COUNTED = (State.QUEUED, State.RUNNING, State.RETRYING, State.CREATED)
_STATES = [state.value for state in _COUNTED]
_COLUMNS = ("queue", *_STATES, "oldest", "completed/min", "failed/min", "wait", "run")
_ALWAYS_SHOWN = {"queue", "queued", "running"}
_PAUSED = " (paused)"
COLUMN_GAP = 2


@commands.command("list")
def list_queues(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List queues with jobs, paused queues, and queues active in the last 5 minutes.

    Shows jobs per state, age of the oldest queued job, completed and failed
    attempts per minute, and their mean queue wait and run time.
    """
    found = run(_queues(url, app))
    if as_json:
        terminal.print_json([_fields(one) for one in found])
    elif not found:
        terminal.info("All queues are empty")
    elif not (_table(found, _COLUMNS) or _table(found, _COLUMNS[:-2])):
        _stack(found)


async def _queues(url: str | None, app: str | None) -> list[Queue]:
    async with open_client(url, app) as client:
        return await client.queues()


def _table(found: Sequence[Queue], columns: Sequence[str]) -> bool:
    """Print a table without empty columns; return False if it does not fit."""
    console = terminal.out()
    rows = [_cells(one) for one in found]
    shown = [
        name
        for name in columns
        if name in _ALWAYS_SHOWN or any(row[name] not in {"", "0"} for row in rows)
    ]
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in shown]
    if sum(widths) + COLUMN_GAP * (len(widths) - 1) > console.width:
        return False
    table = terminal.table(*shown)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(_styled(row[name]) for name in shown))
    console.print(table)
    return True


def _stack(found: Sequence[Queue]) -> None:
    console = terminal.out()
    for one in found:
        row = _cells(one)
        console.print(_styled(row["queue"]), soft_wrap=True)
        counts = [f"{row[name]} {name}" for name in _STATES if row[name] != "0"]
        oldest = f", oldest {row['oldest']}" if row["oldest"] else ""
        console.print(f"  {', '.join(counts) or 'empty'}{oldest}")
        if row["completed/min"] or row["failed/min"]:
            completed, failed = row["completed/min"] or 0, row["failed/min"] or 0
            console.print(f"  per minute: {completed} completed, {failed} failed")


def _cells(one: Queue) -> dict[str, str]:
    return {
        "queue": f"{one.name}{_PAUSED}" if one.paused else one.name,
        **{state.value: _count(one, state) for state in _COUNTED},
        "oldest": _span(one.oldest_age),
        "completed/min": _rate(one.rates.succeeded),
        "failed/min": _rate(one.rates.failed),
        "wait": _span(one.rates.mean_wait),
        "run": _span(one.rates.mean_run),
    }


def _styled(cell: str) -> str:
    name = cell.removesuffix(_PAUSED)
    return escape(cell) if name == cell else f"{escape(name)}[yellow]{_PAUSED}[/]"


def _count(one: Queue, state: State) -> str:
    number = one.counts.get(state, 0)
    return f"{number:,}+" if state in one.capped else f"{number:,}"


def _span(seconds: float | None) -> str:
    return "" if seconds is None else terminal.span(seconds)


def _rate(rate: float) -> str:
    if not rate:
        return ""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"  # noqa: PLR2004 - three digits at most


def _fields(one: Queue) -> dict[str, object]:
    camel = {
        "".join([first, *map(str.title, rest)]): value
        for name, value in asdict(one.rates).items()
        for first, *rest in [name.split("_")]
    }
    return {
        "queue": one.name,
        "paused": one.paused,
        "counts": {state.value: one.counts.get(state, 0) for state in _COUNTED},
        "capped": sorted(state.value for state in one.capped),
        "oldestQueuedAt": terminal.iso(one.oldest_queued_at),
        "oldestAge": one.oldest_age,
        "perMinute": camel,
    }


@commands.command()
def pause(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Pause queues: workers claim no more of their jobs. Running jobs continue."""
    _set_paused(queues, (url, app), paused=True, as_json=as_json)


@commands.command()
def resume(queues: Queues, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume paused queues."""
    _set_paused(queues, (url, app), paused=False, as_json=as_json)


def _set_paused(
    queues: list[str], store: tuple[str | None, str | None], *, paused: bool, as_json: bool
) -> None:
    run(_pause(queues, store, paused=paused))
    if as_json:
        terminal.print_json([{"queue": name, "paused": paused} for name in queues])
        return
    console = terminal.out()
    for name in queues:
        console.print(f"{escape(name)} {'paused' if paused else 'resumed'}", soft_wrap=True)


async def _pause(queues: list[str], store: tuple[str | None, str | None], *, paused: bool) -> None:
    async with open_client(*store) as client:
        await client.store.pause(queues, paused=paused)


@commands.command()
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
        terminal.print_json({"queue": queue, "canceled": canceled})
    elif canceled:
        terminal.out().print(f"{escape(queue)}: {terminal.jobs(canceled)} canceled", soft_wrap=True)
    else:
        terminal.info(f"No jobs waiting in {queue}")


async def _waiting(queue: str, store: tuple[str | None, str | None]) -> str:
    """Return the number of waiting jobs as text; empty if there are none."""
    async with open_client(*store) as client:
        found = (await client.store.stats()).get(queue)
    if found is None:
        return ""
    number = sum(found.counts.get(state, 0) for state in WAITING)
    return terminal.jobs(number, capped=bool(found.capped & WAITING)) if number else ""


async def _clear(queue: str, reason: str | None, store: tuple[str | None, str | None]) -> int:
    async with open_client(*store) as client:
        return await client.clear(queue, reason=reason or "the queue was cleared")
