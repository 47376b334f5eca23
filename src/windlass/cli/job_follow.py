"""Follows a job's events: a progress bar in a terminal, lines or JSON elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from windlass.cli import terminal
from windlass.cli.event_printer import EventPrinter, text_line
from windlass.cli.job_format import decoded, error_fields
from windlass.client import Client
from windlass.core.clock import SECOND
from windlass.core.codec import Purpose
from windlass.core.event import Event, EventType
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

_SHOWN_BY_BAR = {EventType.STEP_PROGRESS, EventType.STEP_STATUS}


async def follow(client: Client, row: JobRow, *, as_json: bool) -> bool:
    """Print events until the job ends; return whether it succeeded."""
    console = terminal.out()
    try:
        if console.is_terminal and not as_json:
            await _bar(client, row, console)
        else:
            printer = EventPrinter(client, row, 0, console, as_json=as_json)
            async for event in client.events(row.id):
                await printer.print(event)
    except asyncio.CancelledError:
        terminal.info(f"Stopped watching; the job continues: windlass jobs watch {row.id}")
        raise
    final = await client.get(row.id)
    if not as_json:
        print_end(client, final, console)
    return final.state is State.SUCCEEDED


async def _bar(client: Client, row: JobRow, console: Console) -> None:
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        expand=True,
    )
    console.print(f"[bold]{escape(row.task)}[/] [dim]{row.id}[/]", soft_wrap=True)
    with progress:
        bar = progress.add_task(terminal.state(row.state), total=100, note="")
        async for event in client.events(row.id):
            progress.update(bar, **_bar_update(event))
            if event.type not in _SHOWN_BY_BAR and not event.final:
                progress.console.print(text_line(client, event), soft_wrap=True)


def _bar_update(event: Event) -> dict[str, Any]:
    """Return what an event changes in the bar."""
    data = event.data
    if event.type is EventType.STEP_PROGRESS:
        return {"completed": data["progressPct"], "note": data.get("stage") or ""}
    if event.type is EventType.RESYNC:
        return {"completed": data["percent"], "description": terminal.state(State(data["state"]))}
    if event.type is EventType.STEP_STATUS or "status" not in data:
        return {}
    return {"completed": data["percent"], "description": terminal.state(State(data["status"]))}


def print_end(client: Client, row: JobRow, console: Console) -> None:
    """Print the final state and the result or error, in one line."""
    duration = ""
    if row.ended_at is not None and row.first_started_at is not None:
        duration = f" after {terminal.span((row.ended_at - row.first_started_at) / SECOND)}"
    detail = ""
    if row.state is State.SUCCEEDED:
        detail = f"result: {terminal.plain(decoded(client, row.result, Purpose.RESULT))}"
    elif row.state is State.CANCELED:
        detail = row.cancel_reason or "no reason given"
    elif row.error is not None:
        message = error_fields(client, row.error).get("message") or ""
        detail = f"{row.error.code}: {message} (windlass jobs show {row.id})"
    console.print(f"{terminal.state(row.state)}{duration}; {escape(detail)}", soft_wrap=True)
