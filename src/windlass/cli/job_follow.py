"""Follow a job's events as they come: a live bar in a terminal, lines or JSON elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from windlass.cli import job_format, terminal
from windlass.client import Client
from windlass.core.clock import SECOND
from windlass.core.codec import Purpose
from windlass.core.event import Event, EventType
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

_QUIET = {EventType.STEP_PROGRESS, EventType.STEP_STATUS}  # the bar itself shows these


async def follow(client: Client, row: JobRow, *, as_json: bool) -> bool:
    """Show everything until the job has ended; answer whether it succeeded."""
    console = terminal.out()
    try:
        if as_json:
            async for line in client.events(row.id):
                terminal.print_json(job_format.event(client, line), line=True)
        elif console.is_terminal:
            await _bar(client, row, console)
        else:
            async for line in client.events(row.id):
                console.print(job_format.words(client, line), soft_wrap=True)
    except asyncio.CancelledError:
        terminal.say(f"no longer watching; the job goes on: windlass jobs watch {row.id}")
        raise
    ended = await client.get(row.id)
    if not as_json:
        tell_end(client, ended, console)
    return ended.state is State.SUCCEEDED


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
        async for line in client.events(row.id):
            progress.update(bar, **_look(line))
            if line.type not in _QUIET and not line.final:
                progress.console.print(job_format.words(client, line), soft_wrap=True)


def _look(line: Event) -> dict[str, Any]:
    """What an event changes about the bar."""
    data = line.data
    if line.type is EventType.STEP_PROGRESS:
        return {"completed": data["progressPct"], "note": data.get("stage") or ""}
    if line.type is EventType.RESYNC:
        return {"completed": data["percent"], "description": terminal.state(State(data["state"]))}
    if line.type is EventType.STEP_STATUS or "status" not in data:
        return {}
    return {"completed": data["percent"], "description": terminal.state(State(data["status"]))}


def tell_end(client: Client, row: JobRow, console: Console) -> None:
    """How it ended, in one line."""
    took = ""
    if row.ended_at is not None and row.first_started_at is not None:
        took = f" after {terminal.span((row.ended_at - row.first_started_at) / SECOND)}"
    said = ""
    if row.state is State.SUCCEEDED:
        said = f"result: {terminal.plain(job_format.decoded(client, row.result, Purpose.RESULT))}"
    elif row.state is State.CANCELED:
        said = row.cancel_reason or "no reason given"
    elif (error := job_format.error(client, row.error)) is not None:
        said = f"{error['code']}: {error.get('message') or ''} (windlass jobs show {row.id})"
    console.print(f"{terminal.state(row.state)}{took}; {escape(said)}", soft_wrap=True)
