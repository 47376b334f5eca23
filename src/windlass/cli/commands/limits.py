"""`windlass limits`: concurrency and rate limits, changed at run time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.admission.limit import Limit
from windlass.records.limit_records import LimitInfo, LimitRecords
from windlass.schemas.limits import LimitList, LimitView
from windlass.store import COUNT_CAP

T = TypeVar("T")
commands = typer.Typer(no_args_is_help=True, help="Manage concurrency and rate limits.")
Name = Annotated[
    str, typer.Argument(help="queue:NAME, task:NAME, or key:NAME for each key of a task.")
]


@commands.command("list")
def list_limits(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the limits, their values in code, and how many jobs use or wait for them."""
    found = run(_with_records(lambda records: records.list(), url, app))
    if as_json:
        terminal.print_json(LimitList.of(found).to_json())
    elif not found:
        terminal.info(
            "No limits. Create one with windlass limits set; limits declared in code appear "
            "after a worker has started or a job was enqueued"
        )
    elif terminal.out().width < terminal.NARROW_WIDTH:
        _stack(found)
    else:
        _table(found)


@commands.command("set")
def set_limit(
    name: Name,
    *,
    concurrency: Annotated[
        int | None, typer.Option(help="Jobs that may run at the same time.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help='Jobs that may start per period: "100/1m".')
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Set a limit, overriding the code until it is reset. Omitted parts are unlimited.

    Example: windlass limits set queue:render --concurrency 2 --rate 100/1m
    """
    limit = Limit(concurrency=concurrency, rate=rate)
    _print_limit(
        run(_with_records(lambda records: records.set(name, limit), url, app)), as_json=as_json
    )


@commands.command()
def reset(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Reset a limit to its value in code, or to unlimited."""
    found = run(_with_records(lambda records: records.reset(name), url, app))
    if found is not None:
        _print_limit(found, as_json=as_json)
    else:
        _print_removed(name, as_json=as_json)


@commands.command()
def remove(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Remove a limit that code no longer declares."""
    found = run(_with_records(lambda records: records.remove(name), url, app))
    _print_removed(name, as_json=as_json)
    if found.declared is not None and not as_json:
        terminal.warn(
            "if your code still declares this limit, the next process that runs this code creates "
            "it again; to change its value, use windlass limits set"
        )


async def _with_records(
    work: Callable[[LimitRecords], Awaitable[T]], url: str | None, app: str | None
) -> T:
    async with open_client(url, app) as client:
        return await work(LimitRecords(client.store))


def _print_limit(info: LimitInfo, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(LimitView.of(info).to_json())
    else:
        source = "" if info.override is not None else " (from code)"
        terminal.out().print(f"{escape(info.name)}: {info.limit}{source}", soft_wrap=True)


def _print_removed(name: str, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"name": name, "limit": None})
    else:
        terminal.out().print(f"{escape(name)}: limit removed", soft_wrap=True)


def _table(found: Sequence[LimitInfo]) -> None:
    table = terminal.table("limit", "value", "in code", "in use", "waiting")
    table.columns[0].min_width = max(len(info.name) for info in found)
    for info in found:
        table.add_row(escape(info.name), str(info.limit), _code(info), *_counts(info))
    for column in table.columns[3:]:
        column.justify = "right"
    terminal.out().print(table)


def _stack(found: Sequence[LimitInfo]) -> None:
    console = terminal.out()
    for info in found:
        console.print(escape(info.name), soft_wrap=True)
        console.print(f"  {info.limit} (code: {_code(info)})", soft_wrap=True)
        in_use, waiting = _counts(info)
        if in_use:
            console.print(f"  {in_use} in use, {waiting} waiting")


def _code(info: LimitInfo) -> str:
    if info.declared is None:
        return "-"
    return "same" if info.declared == info.limit else str(info.declared)


def _counts(info: LimitInfo) -> tuple[str, str]:
    if info.in_use is None or info.waiting is None:
        return "", ""
    more = "+" if info.waiting >= COUNT_CAP else ""
    return f"{info.in_use:,}", f"{info.waiting:,}{more}"
