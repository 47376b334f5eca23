"""`windlass flows`: lists, shows and manages workflows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from windlass.cli import terminal
from windlass.cli.commands import flow_list
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.client import Client
from windlass.core.errors import NotFoundError
from windlass.core.job.dependency import Edges
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.schemas.flows import FlowActionView, FlowView
from windlass.schemas.jobs import JobNode

commands = typer.Typer(no_args_is_help=True, help="List, show and manage workflows.")
commands.command("list")(flow_list.list_flows)
FlowId = Annotated[
    str, typer.Argument(help="Flow id, or the id (or a part of it) of one of its jobs.")
]
REFRESH_INTERVAL = 0.5  # seconds
MAX_ROWS = 20  # jobs shown
MAX_PARENTS = 3  # parents shown per job
_URGENT = frozenset({State.FAILED, State.RUNNING, State.RETRYING})
_Jobs = list[tuple[JobRow, Edges]]
Action = Callable[[Client, UUID], Awaitable[tuple[int, str]]]  # number of jobs, text


@commands.command()
def show(
    flow: FlowId,
    *,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "-w", help="Follow until it ends; exit code 1 if it did not succeed."
        ),
    ] = False,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a flow: state, progress, jobs and their dependencies."""
    stats = run(_show(flow, (url, app), watch=watch, as_json=as_json))
    if watch and stats.state is not State.SUCCEEDED:
        raise typer.Exit(terminal.FAILED)


async def _show(
    flow: str, store: tuple[str | None, str | None], *, watch: bool, as_json: bool
) -> FlowStats:
    async with open_client(*store) as client:
        flow_id = await _find_flow(client, flow)
        console = terminal.out()
        if watch and console.is_terminal and not as_json:
            return await _watch(client, flow_id, console)
        stats = await client.flow(flow_id)
        while watch and stats.ended_at is None:
            await asyncio.sleep(REFRESH_INTERVAL)
            stats = await client.flow(flow_id)
        if as_json:
            found = await _jobs(client, flow_id)
            jobs = [JobNode.with_parents(row, edges.parents) for row, edges in found]
            terminal.print_json(FlowView.of(stats, jobs, more=False).to_json())
        else:
            console.print(_render(stats, await _jobs(client, flow_id, MAX_ROWS)))
        return stats


async def _watch(client: Client, flow_id: UUID, console: Console) -> FlowStats:
    """Refresh until the flow has ended. Only reads."""
    with Live("", console=console, refresh_per_second=4) as live:
        while True:
            started_at = time.monotonic()
            stats = await client.flow(flow_id)
            live.update(_render(stats, await _jobs(client, flow_id, MAX_ROWS)))
            if stats.ended_at is not None:
                return stats
            await asyncio.sleep(max(REFRESH_INTERVAL, time.monotonic() - started_at))


async def _find_flow(client: Client, text: str) -> UUID:
    """Return the id of a flow, given by its own id or by one of its jobs."""
    found = await find_job(client, text)
    [stats] = await client.store.insights.flows([found])
    if stats is not None:
        return found
    [row] = await client.store.get([found])
    if row is None:
        raise NotFoundError(f"no flow or job {found}")
    if row.flow_id is None:
        raise NotFoundError(f"job {found} is not part of a flow")
    return row.flow_id


async def _jobs(client: Client, flow_id: UUID, limit: int | None = None) -> _Jobs:
    """Return its jobs in order of creation; with a limit, failed and running jobs first."""
    found: dict[UUID, JobRow] = {}
    for states in (_URGENT, frozenset[State]()) if limit else (frozenset[State](),):
        async for row in client.flow_jobs(flow_id, states):
            if len(found) == limit:
                break
            if row.retried_as is None:  # else its retry is shown instead
                found[row.id] = row
    rows = sorted(found.values(), key=lambda row: row.serial)
    return list(zip(rows, await client.store.edges([row.id for row in rows]), strict=True))


# -- text output


def _render(stats: FlowStats, jobs: _Jobs) -> RenderableType:
    counts = ", ".join(f"{n:,} {terminal.state(state)}" for state, n in stats.counts.items() if n)
    bar = Table.grid(expand=True, padding=(0, 1, 0, 0))
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    done = ProgressBar(total=100, completed=stats.percent)
    bar.add_row(terminal.state(stats.state), done, f"{stats.percent}%")
    table = terminal.table("job", "state", "", "task", "after")
    for row, edges in jobs:
        percent = f"{row.percent}%" if row.attempt else ""
        name = escape(row.task.rpartition(".")[2])
        table.add_row(_short_id(row.id), terminal.state(row.state), percent, name, _after(edges))
    more = stats.jobs - len(jobs)
    note = [f"[dim]{more:,} more; --json lists all[/]"] if more else []
    return Group(f"[bold]{stats.flow_id}[/]", f"{stats.jobs:,} jobs: {counts}", bar, table, *note)


def _short_id(job: UUID) -> str:
    """Return a part of the id that commands accept."""
    return str(job)[-8:]


def _after(edges: Edges) -> str:
    ids = " ".join(_short_id(parent) for parent in edges.parents[:MAX_PARENTS])
    more = len(edges.parents) - MAX_PARENTS
    return f"{ids} and {more:,} more" if more > 0 else ids


# -- actions


@commands.command()
def cancel(
    flow: FlowId,
    reason: Annotated[str | None, typer.Option(help="Stored with its jobs.")] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel all unfinished jobs of a flow. Running jobs are asked to stop."""

    async def act(client: Client, flow_id: UUID) -> tuple[int, str]:
        number = await client.cancel_flow(flow_id, by="command line", reason=reason)
        return number, f"canceled {number:,} jobs"

    _act(flow, act, (url, app), as_json=as_json)


@commands.command()
def retry(flow: FlowId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Re-run the failed and canceled jobs of a flow from the start."""
    _rerun(flow, (url, app), resume=False, as_json=as_json)


@commands.command()
def resume(flow: FlowId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume the failed and canceled jobs of a flow after their last completed step."""
    _rerun(flow, (url, app), resume=True, as_json=as_json)


def _rerun(flow: str, store: tuple[str | None, str | None], *, resume: bool, as_json: bool) -> None:
    async def act(client: Client, flow_id: UUID) -> tuple[int, str]:
        rows: Sequence[JobRow] = await client.retry_flow(flow_id, resume=resume)
        verb = "resumed" if resume else "retried"
        return len(rows), f"{verb} as {len(rows):,} new jobs"

    _act(flow, act, store, as_json=as_json)


def _act(flow: str, act: Action, store: tuple[str | None, str | None], *, as_json: bool) -> None:
    async def work() -> tuple[UUID, int, str]:
        async with open_client(*store) as client:
            flow_id = await _find_flow(client, flow)
            return flow_id, *await act(client, flow_id)

    flow_id, number, text = run(work())
    if as_json:
        terminal.print_json(FlowActionView(id=flow_id, jobs=number).to_json())
    else:
        terminal.out().print(f"{flow_id} {escape(text)}", soft_wrap=True)
