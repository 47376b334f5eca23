"""`windlass jobs list`: which jobs there are, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from windlass.cli import job_format, terminal
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run
from windlass.core.admission.gates import limit_name
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import MAX_PAGE, Page, Query

Names = Annotated[list[str] | None, typer.Option(help="Only these; may be repeated.")]


def list_jobs(
    *,
    state: Annotated[
        list[State] | None, typer.Option("--state", "-s", help="Only these; may be repeated.")
    ] = None,
    queue: Names = None,
    task: Names = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only with this tag; repeated: with all.")
    ] = None,
    error: Annotated[str | None, typer.Option(help="Only with this error code.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MAX_PAGE)] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before this one ended.")
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    query = Query(
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
        jobs = [job_format.summary(row) for row in page.rows]
        terminal.print_json({"jobs": jobs, "cursor": page.cursor})
    else:
        _print(page)


def _print(page: Page) -> None:
    console = terminal.out()
    if not page.rows:
        terminal.say("no jobs match" if page.cursor is None else "none in this page")
    elif console.width < terminal.NARROW:
        _stack(page.rows, console)
    else:
        _table(page.rows, console)
    if page.cursor is not None:
        terminal.say(f"more: add --cursor {page.cursor}")


async def _find(query: Query, url: str | None, app: str | None) -> Page:
    """A page of a filtered search may come empty before the end: go on until it has something."""
    async with opened(url, app) as client:
        page = await client.store.find(query)
        while not page.rows and page.cursor is not None:
            query = Query(
                **{name: getattr(query, name) for name in Query.__slots__ if name != "cursor"},
                cursor=page.cursor,
            )
            page = await client.store.find(query)
        return page


def _table(rows: Sequence[JobRow], console: Console) -> None:
    table = terminal.table("id", "state", "age", "task", "progress")
    for column, width in zip(table.columns, (36, 9, 4), strict=False):
        column.min_width = width  # an id that is cut short is of no use; names may give way
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
    """How far it is, or why it is no further."""
    if row.state is State.FAILED and row.error is not None:
        return row.error.code
    if row.held:
        return "held"
    if row.gate is not None:
        return f"at {limit_name(row.gate)}"
    if row.due_at is not None and not row.final:
        return f"due {terminal.ago(row.due_at)}"
    if row.cancel_requested and not row.final:
        return f"{row.percent}% canceling"
    if row.final or not (row.percent or row.stage):
        return ""
    return f"{row.percent}% {row.stage or ''}".strip()
