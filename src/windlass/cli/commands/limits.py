"""`windlass limits`: how many may run at once or start in a time, and changing that at run time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run
from windlass.core.admission.gates import Limit
from windlass.limits import Gatekeeper, Limited
from windlass.store import COUNT_CAP

T = TypeVar("T")
commands = typer.Typer(
    no_args_is_help=True, help="See what is limited, and who waits; set, reset, remove."
)
Name = Annotated[
    str, typer.Argument(help="queue:NAME, task:NAME, or key:NAME for each key of a task.")
]


@commands.command("list")
def list_limits(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the limits, what code declares, and how many jobs hold a slot or wait for one."""
    found = run(_on(lambda keeper: keeper.list(), url, app))
    if as_json:
        terminal.print_json([_facts(one) for one in found])
    elif not found:
        terminal.say(
            "no limits: windlass limits set makes one; those that code declares are here "
            "once a worker has started, or a job was enqueued"
        )
    elif terminal.out().width < terminal.NARROW:
        _stack(found)
    else:
        _table(found)


@commands.command("set")
def set_limit(
    name: Name,
    *,
    concurrency: Annotated[int | None, typer.Option(help="How many may run at once.")] = None,
    rate: Annotated[
        str | None, typer.Option(help='How many may start in any stretch of a time: "100/1m".')
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Set a limit, whatever the code says, until it is reset. What is not named is not limited.

    Example: windlass limits set queue:render --concurrency 2 --rate 100/1m
    """
    limit = Limit(concurrency=concurrency, rate=rate)
    _told(run(_on(lambda keeper: keeper.set(name, limit), url, app)), as_json=as_json)


@commands.command()
def reset(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Go back to what the code says. If it says nothing, all may pass."""
    found = run(_on(lambda keeper: keeper.reset(name), url, app))
    if found is not None:
        _told(found, as_json=as_json)
    else:
        _gone(name, as_json=as_json)


@commands.command()
def remove(name: Name, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Let all pass: for what code no longer declares."""
    found = run(_on(lambda keeper: keeper.remove(name), url, app))
    _gone(name, as_json=as_json)
    if found.declared is not None and not as_json:
        terminal.warn(
            "code declared it: if it still does, the limit is back when a process of it starts; "
            "set another one instead"
        )


async def _on(work: Callable[[Gatekeeper], Awaitable[T]], url: str | None, app: str | None) -> T:
    async with opened(url, app) as client:
        return await work(Gatekeeper(client.store))


def _told(one: Limited, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json(_facts(one))
    else:
        whose = "" if one.given is not None else ", as the code says"
        terminal.out().print(f"{escape(one.name)}: {one.limit}{whose}", soft_wrap=True)


def _gone(name: str, *, as_json: bool) -> None:
    if as_json:
        terminal.print_json({"name": name, "limit": None})
    else:
        terminal.out().print(f"{escape(name)}: no limit any more", soft_wrap=True)


def _table(found: Sequence[Limited]) -> None:
    table = terminal.table("limit", "allows", "code says", "holding", "waiting")
    table.columns[0].min_width = max(len(one.name) for one in found)
    for one in found:
        table.add_row(escape(one.name), str(one.limit), _code(one), *_counts(one))
    for column in table.columns[3:]:
        column.justify = "right"
    terminal.out().print(table)


def _stack(found: Sequence[Limited]) -> None:
    console = terminal.out()
    for one in found:
        console.print(escape(one.name), soft_wrap=True)
        console.print(f"  {one.limit} (code: {_code(one)})", soft_wrap=True)
        holding, waiting = _counts(one)
        if holding:
            console.print(f"  {holding} holding, {waiting} waiting")


def _code(one: Limited) -> str:
    if one.declared is None:
        return "nothing"
    return "the same" if one.declared == one.limit else str(one.declared)


def _counts(one: Limited) -> tuple[str, str]:
    if one.holding is None or one.waiting is None:
        return "", ""
    more = "+" if one.waiting >= COUNT_CAP else ""
    return f"{one.holding:,}", f"{one.waiting:,}{more}"


def _facts(one: Limited) -> dict[str, Any]:
    return {
        "name": one.name,
        "limit": one.limit.encode(),
        "declared": None if one.declared is None else one.declared.encode(),
        "given": None if one.given is None else one.given.encode(),
        "holding": one.holding,
        "waiting": one.waiting,
    }
