"""`windlass flows`: a flow and its jobs, and acting on it as a whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from windlass.cli import job_format, terminal
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run, which
from windlass.client import Client
from windlass.core.errors import NotFoundError
from windlass.core.job.dependency import Edges, FlowStats
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

commands = typer.Typer(no_args_is_help=True, help="See flows, and act on all of their jobs.")
FlowId = Annotated[
    str, typer.Argument(help="The flow's id; or the id of one of its jobs, or a piece of that.")
]
LOOK = 0.5  # seconds
ROWS = 20  # jobs that are shown to people, and parents of each
PARENTS = 3
_URGENT = frozenset({State.FAILED, State.RUNNING, State.RETRYING})
_Jobs = list[tuple[JobRow, Edges]]


@commands.command()
def show(
    flow: FlowId,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Until it ends; exit code 1 if that is no success."),
    ] = False,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a flow: its state, its progress, its jobs, and those that each comes after."""
    stats = run(_show(flow, (url, app), watch=watch, as_json=as_json))
    if watch and stats.state is not State.SUCCEEDED:
        raise typer.Exit(terminal.FAILED)


async def _show(
    flow: str, place: tuple[str | None, str | None], *, watch: bool, as_json: bool
) -> FlowStats:
    async with opened(*place) as client:
        flow_id = await _which(client, flow)
        console = terminal.out()
        if watch and console.is_terminal and not as_json:
            return await _watch(client, flow_id, console)
        stats = await client.flow(flow_id)
        while watch and stats.ended_at is None:
            await asyncio.sleep(LOOK)
            stats = await client.flow(flow_id)
        if as_json:
            terminal.print_json(_facts(stats, await _jobs(client, flow_id)))
        else:
            console.print(_picture(stats, await _jobs(client, flow_id, ROWS)))
        return stats


async def _watch(client: Client, flow_id: UUID, console: Console) -> FlowStats:
    """Looks again after a moment, until the flow has ended. It only reads."""
    with Live("", console=console, refresh_per_second=4) as live:
        while True:
            began = time.monotonic()
            stats = await client.flow(flow_id)
            live.update(_picture(stats, await _jobs(client, flow_id, ROWS)))
            if stats.ended_at is not None:
                return stats
            await asyncio.sleep(max(LOOK, time.monotonic() - began))


async def _which(client: Client, text: str) -> UUID:
    """The flow of that id, or that of the job which is meant."""
    meant = await which(client, text)
    [stats] = await client.store.flows([meant])
    if stats is not None:
        return meant
    [row] = await client.store.get([meant])
    if row is None:
        raise NotFoundError(f"there is no flow {meant}, and no job")
    if row.flow_id is None:
        raise NotFoundError(f"job {meant} belongs to no flow")
    return row.flow_id


async def _jobs(client: Client, flow_id: UUID, most: int | None = None) -> _Jobs:
    """Its jobs in the order in which they came; if not all, first those that matter most."""
    found: dict[UUID, JobRow] = {}
    for states in (_URGENT, frozenset[State]()) if most else (frozenset[State](),):
        async for row in client.flow_jobs(flow_id, states):
            if len(found) == most:
                break
            if row.retried_as is None:  # else its retry stands for it
                found[row.id] = row
    rows = sorted(found.values(), key=lambda row: row.serial)
    return list(zip(rows, await client.store.edges([row.id for row in rows]), strict=True))


# -- for people


def _picture(stats: FlowStats, jobs: _Jobs) -> RenderableType:
    counts = ", ".join(f"{n:,} {terminal.state(state)}" for state, n in stats.counts.items() if n)
    bar = Table.grid(expand=True, padding=(0, 1, 0, 0))
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    done = ProgressBar(total=100, completed=stats.percent)
    bar.add_row(terminal.state(stats.state), done, f"{stats.percent}%")
    table = terminal.table("job", "state", "", "task", "after")
    for row, its in jobs:
        percent = f"{row.percent}%" if row.attempt else ""
        name = escape(row.task.rpartition(".")[2])
        table.add_row(_tail(row.id), terminal.state(row.state), percent, name, _after(its))
    more = stats.jobs - len(jobs)
    rest = [f"[dim]{more:,} more; --json has all of them[/]"] if more else []
    return Group(f"[bold]{stats.flow_id}[/]", f"{stats.jobs:,} jobs: {counts}", bar, table, *rest)


def _tail(job: UUID) -> str:
    """As much of an id as commands need."""
    return str(job)[-8:]


def _after(its: Edges) -> str:
    named = " ".join(_tail(parent) for parent in its.parents[:PARENTS])
    more = len(its.parents) - PARENTS
    return f"{named} and {more:,} more" if more > 0 else named


# -- for scripts


def _facts(stats: FlowStats, jobs: _Jobs) -> dict[str, Any]:
    return {
        "id": str(stats.flow_id),
        "state": stats.state.value,
        "percent": stats.percent,
        "counts": {state.value: stats.counts.get(state, 0) for state in State},
        "createdAt": terminal.iso(stats.created_at),
        "endedAt": terminal.iso(stats.ended_at),
        "jobs": [
            job_format.summary(row) | {"dependsOn": [str(parent) for parent in its.parents]}
            for row, its in jobs
        ],
    }


# -- acting


@commands.command()
def cancel(
    flow: FlowId,
    reason: Annotated[str | None, typer.Option(help="Kept with its jobs.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel all of its jobs that have not ended. Running ones are told to stop."""

    async def act(client: Client, flow_id: UUID) -> tuple[dict[str, Any], str]:
        number = await client.cancel_flow(flow_id, by="command line", reason=reason)
        return {"canceled": number}, f"canceled: {number:,} jobs had not ended"

    _act(flow, act, (url, app), as_json=as_json)


@commands.command()
def retry(flow: FlowId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Do again what failed or was canceled, from the beginning; what succeeded stands."""
    _again(flow, (url, app), resume=False, as_json=as_json)


@commands.command()
def resume(flow: FlowId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """The same, each job after its last completed step."""
    _again(flow, (url, app), resume=True, as_json=as_json)


def _again(flow: str, place: tuple[str | None, str | None], *, resume: bool, as_json: bool) -> None:
    async def act(client: Client, flow_id: UUID) -> tuple[dict[str, Any], str]:
        rows: Sequence[JobRow] = await client.retry_flow(flow_id, resume=resume)
        verb = "resumed" if resume else "retried"
        return {"jobs": [str(row.id) for row in rows]}, f"{verb}: {len(rows):,} jobs are new"

    _act(flow, act, place, as_json=as_json)


def _act(flow: str, act: Any, place: tuple[str | None, str | None], *, as_json: bool) -> None:
    async def work() -> tuple[UUID, dict[str, Any], str]:
        async with opened(*place) as client:
            flow_id = await _which(client, flow)
            return flow_id, *await act(client, flow_id)

    job: Coroutine[Any, Any, tuple[UUID, dict[str, Any], str]] = work()
    flow_id, facts, words = run(job)
    if as_json:
        terminal.print_json({"id": str(flow_id)} | facts)
    else:
        terminal.out().print(f"{flow_id} {escape(words)}", soft_wrap=True)
