"""`windlass queues list`: depth and rates of queues."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.job.state import State
from windlass.insights.queue_overview import Queue
from windlass.schemas.queues import Queues

_COUNTED = (State.QUEUED, State.RUNNING, State.RETRYING, State.CREATED)
_STATES = [state.value for state in _COUNTED]
_COLUMNS = ("queue", *_STATES, "oldest", "completed/min", "failed/min", "wait", "run")
_ALWAYS_SHOWN = {"queue", "queued", "running"}
_PAUSED = " (paused)"
COLUMN_GAP = 2


def list_queues(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List queues with jobs, paused queues, and queues active in the last 5 minutes.

    Shows jobs per state, age of the oldest queued job, completed and failed
    attempts per minute, and their mean queue wait and run time.
    """
    found = run(_queues(url, app))
    if as_json:
        terminal.print_json(Queues.of(found).to_json())
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
    rows = [_cells(queue) for queue in found]
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
    for queue in found:
        row = _cells(queue)
        console.print(_styled(row["queue"]), soft_wrap=True)
        counts = [f"{row[name]} {name}" for name in _STATES if row[name] != "0"]
        oldest = f", oldest {row['oldest']}" if row["oldest"] else ""
        console.print(f"  {', '.join(counts) or 'empty'}{oldest}")
        if row["completed/min"] or row["failed/min"]:
            completed, failed = row["completed/min"] or 0, row["failed/min"] or 0
            console.print(f"  per minute: {completed} completed, {failed} failed")


def _cells(queue: Queue) -> dict[str, str]:
    return {
        "queue": f"{queue.name}{_PAUSED}" if queue.paused else queue.name,
        **{state.value: _count(queue, state) for state in _COUNTED},
        "oldest": _span(queue.oldest_age),
        "completed/min": _rate(queue.rates.succeeded),
        "failed/min": _rate(queue.rates.failed),
        "wait": _span(queue.rates.mean_wait),
        "run": _span(queue.rates.mean_run),
    }


def _styled(cell: str) -> str:
    name = cell.removesuffix(_PAUSED)
    return escape(cell) if name == cell else f"{escape(name)}[yellow]{_PAUSED}[/]"


def _count(queue: Queue, state: State) -> str:
    number = queue.counts.get(state, 0)
    return f"{number:,}+" if state in queue.capped else f"{number:,}"


def _span(seconds: float | None) -> str:
    return "" if seconds is None else terminal.span(seconds)


def _rate(rate: float) -> str:
    if not rate:
        return ""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"  # noqa: PLR2004 - three digits at most
