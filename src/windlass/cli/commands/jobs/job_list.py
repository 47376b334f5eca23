"""`windlass jobs list`: jobs, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.admission.gates import limit_name
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import MAX_PAGE, JobQuery, Page
from windlass.schemas.jobs import JobPage

QueueNames = Annotated[list[str] | None, typer.Option(help="Filter by queue; may be repeated.")]
TaskNames = Annotated[list[str] | None, typer.Option(help="Filter by task; may be repeated.")]


def list_jobs(
    *,
    state: Annotated[
        list[State] | None,
        typer.Option("--state", "-s", help="Filter by state; may be repeated."),
    ] = None,
    queue: QueueNames = None,
    task: TaskNames = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Filter by tag; repeat to require several.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(help="Filter by error code; for other exceptions, the class name.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=MAX_PAGE, help="Number of jobs.")
    ] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after this cursor, printed below a page.")
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    query = JobQuery(
        states=frozenset(state or ()),
        queues=frozenset(queue or ()),
        tasks=frozenset(task or ()),
        tags=frozenset(tag or ()),
        error=error,
        limit=limit,
        cursor=cursor,
    )
    page = run(_find(query, url, app))
    if as_json:
        terminal.print_json(JobPage.of(page).to_json())
    else:
        _print(page)


def _print(page: Page) -> None:
    console = terminal.out()
    if not page.rows:
        terminal.info("No jobs match" if page.cursor is None else "No jobs on this page")
    elif console.width < terminal.NARROW_WIDTH:
        _stack(page.rows, console)
    else:
        _table(page.rows, console)
    if page.cursor is not None:
        terminal.info(f"More: add --cursor {page.cursor}")


async def _find(query: JobQuery, url: str | None, app: str | None) -> Page:
    """Read until a page has rows: pages of a filtered search can be empty before the end."""
    async with open_client(url, app) as client:
        page = await client.store.find(query)
        while not page.rows and page.cursor is not None:
            query = replace(query, cursor=page.cursor)
            page = await client.store.find(query)
        return page


def _table(rows: Sequence[JobRow], console: Console) -> None:
    table = terminal.table("id", "state", "age", "task", "progress")
    for column, width in zip(table.columns, (36, 9, 4), strict=False):
        column.min_width = width  # never cut ids; names may be cut
    for row in rows:
        table.add_row(
            str(row.id),
            terminal.state(row.state),
            terminal.ago(row.created_at).removesuffix(" ago"),
            escape(row.task),
            escape(_progress(row)),
        )
    console.print(table)


def _stack(rows: Sequence[JobRow], console: Console) -> None:
    for row in rows:
        console.print(str(row.id), soft_wrap=True)
        console.print(
            f"  {terminal.state(row.state)} {escape(row.task)} {escape(_progress(row))} "
            f"[dim]{terminal.ago(row.created_at)}[/]"
        )


def _progress(row: JobRow) -> str:
    """Return its progress, its error code, or why it waits."""
    if row.state is State.FAILED and row.error is not None:
        return row.error.code
    if row.held:
        return "held"
    if row.gate is not None:
        return f"limited by {limit_name(row.gate)}"
    if row.due_at is not None and not row.final:
        return f"scheduled {terminal.ago(row.due_at)}"
    if row.cancel_requested and not row.final:
        return f"{row.percent}% canceling"
    if row.final or not (row.percent or row.stage):
        return ""
    return f"{row.percent}% {row.stage or ''}".strip()
