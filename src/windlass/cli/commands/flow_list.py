"""`windlass flows list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.schemas.flows import FlowPageView

MAX_FLOWS = 100  # of a page


def list_flows(
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_FLOWS, help="Number of flows.")
    ] = 20,
    cursor: Annotated[
        UUID | None, typer.Option(help="Continue after this cursor, printed below a page.")
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """List flows, newest first, with their progress and jobs.

    Of a flow with more than 1,000 jobs, only the newest 1,000 are counted ("+").
    """
    page = run(_find(limit, cursor, url, app))
    if as_json:
        terminal.print_json(FlowPageView.of(page).to_json())
    else:
        _print(page)


async def _find(limit: int, cursor: UUID | None, url: str | None, app: str | None) -> FlowPage:
    """Read until a page has flows: with a key of an owner, pages can be empty before the end."""
    async with open_client(url, app) as client:
        page = await client.store.insights.newest_flows(limit, cursor)
        while not page.flows and page.cursor is not None:
            page = await client.store.insights.newest_flows(limit, page.cursor)
        return page


def _print(page: FlowPage) -> None:
    console = terminal.out()
    if not page.flows:
        terminal.info("No flows yet")
    elif console.width < terminal.NARROW_WIDTH:
        _stack(page.flows, console)
    else:
        _table(page.flows, console)
    if page.cursor is not None:
        terminal.info(f"More: add --cursor {page.cursor}")


def _table(flows: Sequence[FlowStats], console: Console) -> None:
    table = terminal.table("id", "state", "age", "progress", "jobs")
    for column, width in zip(table.columns, (36, 9, 4), strict=False):
        column.min_width = width  # never cut ids
    for flow in flows:
        table.add_row(
            str(flow.flow_id),
            terminal.state(flow.state),
            terminal.ago(flow.created_at).removesuffix(" ago"),
            f"{flow.percent}%",
            _jobs(flow),
        )
    console.print(table)


def _stack(flows: Sequence[FlowStats], console: Console) -> None:
    for flow in flows:
        console.print(str(flow.flow_id), soft_wrap=True)
        console.print(
            f"  {terminal.state(flow.state)} {flow.percent}% "
            f"[dim]{terminal.ago(flow.created_at)}[/]"
        )
        console.print(f"  {_jobs(flow)}", soft_wrap=True)


def _jobs(flow: FlowStats) -> str:
    counts = ", ".join(f"{n:,} {state}" for state, n in flow.counts.items() if n)
    return f"{flow.jobs:,}{'+' if flow.capped else ''}: {counts}"
