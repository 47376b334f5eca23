"""`windlass schedules`: manages cron schedules and intervals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.app_loader import require_app
from windlass.cli.commands.config import duration
from windlass.cli.commands.enqueue import find_task, parse_argument, prepare_job
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.client import Client, accepted_row
from windlass.core.clock import from_datetime
from windlass.core.schedule import MissedPolicy
from windlass.options import EnqueueOptions
from windlass.records.schedule_records import ScheduleInfo, ScheduleRecords
from windlass.schemas.jobs import EnqueuedView
from windlass.schemas.schedules import (
    ScheduleList,
    ScheduleView,
    schedule_view,
    schedule_views,
)

T = TypeVar("T")
Described = tuple[ScheduleInfo, ScheduleView]  # for people, for scripts
commands = typer.Typer(no_args_is_help=True, help="Manage cron schedules and intervals.")
Name = Annotated[str, typer.Argument(help="Schedule name.")]


@commands.command("list")
def list_schedules(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List schedules with their last and next run."""

    async def work(records: ScheduleRecords, client: Client) -> list[Described]:
        found = await records.list()
        return list(zip(found, await schedule_views(found, client), strict=True))

    described = run(_with_records(work, url, app))
    found = [info for info, _ in described]
    if as_json:
        views = [view for _, view in described]
        terminal.print_json(ScheduleList(schedules=views).to_json())
    elif not found:
        terminal.info(
            "No schedules. Create one with windlass schedules add; "
            "schedules declared in code appear after a worker has started"
        )
    elif terminal.out().width < terminal.NARROW_WIDTH:
        _stack(found)
    else:
        _table(found)


@commands.command()
def add(
    name: Name,
    task: Annotated[str, typer.Argument(help="Task name, or its last part.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value; the value is JSON, otherwise text.")
    ] = None,
    *,
    cron: Annotated[
        str | None, typer.Option(help='Minute, hour, day, month, weekday: "30 3 * * mon-fri".')
    ] = None,
    every: Annotated[str | None, typer.Option(help='Interval: "5m".')] = None,
    tz: Annotated[
        str | None, typer.Option(help="Time zone of the cron expression: Europe/Berlin.")
    ] = None,
    missed: Annotated[
        MissedPolicy, typer.Option(help="Catch-up of runs missed by more than a minute.")
    ] = MissedPolicy.LAST,
    queue: Annotated[str | None, typer.Option(help="Queue, instead of the task's.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    unique_key: Annotated[
        str | None, typer.Option(help="At most one active job of the task with this key.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(help="Key for limits per key and fairness.")
    ] = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule. The arguments of its jobs are checked against the task's signature.

    Example: windlass schedules add nightly report country=de --cron "0 3 * * *" -A tasks:app
    """
    values = dict(parse_argument(text) for text in arguments or ())
    options = EnqueueOptions(
        queue=queue, priority=priority, unique_key=unique_key, limit_key=limit_key
    )
    application = require_app(app)

    async def work() -> Described:
        try:
            job = prepare_job(application, find_task(application, task), values, options)
            timing: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
            added = application.schedules.aadd(name, job, **timing)
            return await _described(added, application.client())
        finally:
            await application.aclose()

    _print_schedule(run(work()), "added", as_json=as_json)


@commands.command()
def pause(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Pause a schedule. Runs missed during the pause are skipped."""

    async def work(records: ScheduleRecords, client: Client) -> Described:
        return await _described(records.pause(name), client)

    found = run(_with_records(work, url, app))
    _print_schedule(found, "paused", as_json=as_json)


@commands.command()
def resume(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Resume a schedule from its next tick."""

    async def work(records: ScheduleRecords, client: Client) -> Described:
        return await _described(records.pause(name, paused=False), client)

    found = run(_with_records(work, url, app))
    _print_schedule(found, "resumed", as_json=as_json)


@commands.command()
def delete(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Delete a schedule. Its jobs are kept."""
    found = run(_with_records(lambda records, _: records.delete(name), url, app))
    if as_json:
        terminal.print_json({"name": found.name, "deleted": True, "declared": found.declared})
        return
    terminal.out().print(f"{escape(name)} deleted", soft_wrap=True)
    if found.declared:
        terminal.warn(
            "code declares this schedule: the next worker start restores it; "
            "remove it from the code, or pause it instead"
        )


@commands.command("run")
def run_now(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Enqueue its job now, in addition to its ticks; also while it is paused."""

    async def work(records: ScheduleRecords, client: Client) -> EnqueuedView:
        [result] = await client.enqueue([await records.job(name)])
        row = accepted_row(result)
        return EnqueuedView.from_row(row, client.codec, duplicate=row.id != result.new.id)

    job = run(_with_records(work, url, app))
    if as_json:
        terminal.print_json(job.to_json())
    else:
        terminal.out().print(f"{job.id} {terminal.state(job.state)}", soft_wrap=True)


async def _with_records(
    work: Callable[[ScheduleRecords, Client], Awaitable[T]], url: str | None, app: str | None
) -> T:
    async with open_client(url, app) as client:
        return await work(ScheduleRecords(client.store), client)


async def _described(change: Awaitable[ScheduleInfo], client: Client) -> Described:
    info = await change
    return info, await schedule_view(info, client)


def _print_schedule(described: Described, action: str, *, as_json: bool) -> None:
    info, view = described
    if as_json:
        terminal.print_json(view.to_json())
        return
    next_run = "" if info.next_tick is None else f"; next run {_next(info)}"
    terminal.out().print(f"{escape(info.name)} {action}{next_run}", soft_wrap=True)


def _table(found: Sequence[ScheduleInfo]) -> None:
    table = terminal.table("schedule", "when", "task", "missed", "last", "next")
    table.columns[0].min_width = max(len(info.name) for info in found)
    for info in found:
        table.add_row(
            escape(info.name),
            escape(_when(info)),
            escape(info.task),
            info.missed.value,
            _last(info),
            _next(info),
        )
    terminal.out().print(table)


def _stack(found: Sequence[ScheduleInfo]) -> None:
    console = terminal.out()
    for info in found:
        console.print(escape(info.name), soft_wrap=True)
        console.print(f"  {escape(_when(info))}: {escape(info.task)}", soft_wrap=True)
        console.print(f"  last {_last(info)}, next {_next(info)}, missed: {info.missed.value}")


def _when(info: ScheduleInfo) -> str:
    if info.every is not None:
        return f"every {duration(info.every)}"
    return f"{info.cron}" if info.tz == "UTC" else f"{info.cron} {info.tz}"


def _last(info: ScheduleInfo) -> str:
    return "never" if info.last_tick is None else terminal.ago(from_datetime(info.last_tick))


def _next(info: ScheduleInfo) -> str:
    if info.paused:
        return "[yellow]paused[/]"
    return "never" if info.next_tick is None else terminal.ago(from_datetime(info.next_tick))
