"""`windlass schedules`: what makes jobs by itself, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from windlass.cli import job_format, terminal
from windlass.cli.commands.config import duration
from windlass.cli.commands.enqueue import argument, find_task, prepared
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run, the_app
from windlass.client import Client, EnqueueOptions, accepted
from windlass.core.clock import from_datetime
from windlass.core.job.row import JobRow
from windlass.core.schedule import Missed
from windlass.schedule_records import Planned, Timetable

T = TypeVar("T")
commands = typer.Typer(
    no_args_is_help=True, help="See what makes jobs by itself; add, pause, run, delete."
)
Name = Annotated[str, typer.Argument(help="The schedule's name.")]


@commands.command("list")
def list_schedules(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the schedules: when they tick, and when they last did."""
    found = run(_on(lambda table, _: table.list(), url, app))
    if as_json:
        terminal.print_json([_facts(one) for one in found])
    elif not found:
        terminal.say(
            "no schedules: windlass schedules add makes one; "
            "those that code declares are here once a worker has started"
        )
    elif terminal.out().width < terminal.NARROW:
        _stack(found)
    else:
        _table(found)


@commands.command()
def add(
    name: Name,
    task: Annotated[str, typer.Argument(help="The task's name, or the last part of it.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value; the value is JSON, or else text.")
    ] = None,
    *,
    cron: Annotated[
        str | None, typer.Option(help='Minute, hour, day, month, weekday: "30 3 * * mon-fri".')
    ] = None,
    every: Annotated[str | None, typer.Option(help='From tick to tick: "5m".')] = None,
    tz: Annotated[str | None, typer.Option(help="Of the cron text: Europe/Berlin.")] = None,
    missed: Annotated[
        Missed, typer.Option(help="What becomes of ticks that no worker saw within a minute.")
    ] = Missed.LAST,
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    unique_key: Annotated[
        str | None, typer.Option(help="One active job of the task with this key.")
    ] = None,
    limit_key: Annotated[
        str | None, typer.Option(help="Limits per key count by it, and keys take turns.")
    ] = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Add a schedule. The arguments of its jobs are checked against the task's signature.

    Example: windlass schedules add nightly report country=de --cron "0 3 * * *" -A tasks:app
    """
    values = dict(argument(text) for text in arguments or ())
    options = EnqueueOptions(
        queue=queue, priority=priority, unique_key=unique_key, limit_key=limit_key
    )
    application = the_app(app)

    async def work() -> Planned:
        try:
            job = prepared(application, find_task(application, task), values, options)
            timing: dict[str, Any] = {"cron": cron, "every": every, "tz": tz, "missed": missed}
            return await application.schedules.aadd(name, job, **timing)
        finally:
            await application.aclose()

    _told(run(work()), "added", as_json=as_json)


@commands.command()
def pause(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Make no more jobs of it. What would have ticked meanwhile does not come back."""
    _told(run(_on(lambda table, _: table.pause(name), url, app)), "paused", as_json=as_json)


@commands.command()
def resume(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Make jobs of it again, from its next tick on."""
    found = run(_on(lambda table, _: table.pause(name, paused=False), url, app))
    _told(found, "goes on", as_json=as_json)


@commands.command()
def delete(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Forget it. The jobs that it made stay."""
    found = run(_on(lambda table, _: table.delete(name), url, app))
    if as_json:
        terminal.print_json({"name": found.name, "deleted": True, "declared": found.declared})
        return
    terminal.out().print(f"{escape(name)} deleted", soft_wrap=True)
    if found.declared:
        terminal.warn(
            "code declares it: a worker that starts brings it back; "
            "take it out of the code, or pause it instead"
        )


@commands.command("run")
def run_now(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Enqueue a job of it now, beside its ticks; also while it is paused."""

    async def work(table: Timetable, client: Client) -> JobRow:
        [answer] = await client.enqueue([await table.job(name)])
        return accepted(answer)

    row = run(_on(work, url, app))
    if as_json:
        terminal.print_json(job_format.summary(row))
    else:
        terminal.out().print(f"{row.id} {terminal.state(row.state)}", soft_wrap=True)


async def _on(
    work: Callable[[Timetable, Client], Awaitable[T]], url: str | None, app: str | None
) -> T:
    async with opened(url, app) as client:
        return await work(Timetable(client.store), client)


def _told(one: Planned, what: str, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(_facts(one))
        return
    upcoming = "" if one.next_tick is None else f"; it ticks {_next(one)}"
    terminal.out().print(f"{escape(one.name)} {what}{upcoming}", soft_wrap=True)


def _table(found: Sequence[Planned]) -> None:
    table = terminal.table("schedule", "when", "task", "missed", "last", "next")
    table.columns[0].min_width = max(len(one.name) for one in found)
    for one in found:
        table.add_row(
            escape(one.name),
            escape(_when(one)),
            escape(one.task),
            one.missed.value,
            _last(one),
            _next(one),
        )
    terminal.out().print(table)


def _stack(found: Sequence[Planned]) -> None:
    console = terminal.out()
    for one in found:
        console.print(escape(one.name), soft_wrap=True)
        console.print(f"  {escape(_when(one))}: {escape(one.task)}", soft_wrap=True)
        console.print(f"  last {_last(one)}, next {_next(one)}, missed: {one.missed.value}")


def _when(one: Planned) -> str:
    if one.every is not None:
        return f"every {duration(one.every)}"
    return f"{one.cron}" if one.tz == "UTC" else f"{one.cron} {one.tz}"


def _last(one: Planned) -> str:
    return "never" if one.last_tick is None else terminal.ago(from_datetime(one.last_tick))


def _next(one: Planned) -> str:
    if one.paused:
        return "[yellow]paused[/]"
    return "never" if one.next_tick is None else terminal.ago(from_datetime(one.next_tick))


def _facts(one: Planned) -> dict[str, Any]:
    last = None if one.last_tick is None else terminal.iso(from_datetime(one.last_tick))
    upcoming = None if one.next_tick is None else terminal.iso(from_datetime(one.next_tick))
    return {
        "name": one.name,
        "task": one.task,
        "cron": one.cron,
        "every": one.every,
        "tz": one.tz,
        "missed": one.missed.value,
        "paused": one.paused,
        "declared": one.declared,
        "lastTick": last,
        "nextTick": upcoming,
    }
