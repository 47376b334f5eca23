"""`windlass workers list`: the running workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, Url, open_client, run
from windlass.core.worker_presence import LiveWorker

commands = typer.Typer(no_args_is_help=True, help="List running workers.")


@commands.callback()
def workers() -> None:
    """List running workers."""


@commands.command("list")
def list_workers(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List running workers with their queues and last claim.

    A dead worker is listed for up to 30 seconds. An unresponsive worker is
    running and has free slots, but has stopped fetching jobs: restart it.
    """
    found = run(_workers(url, app))
    if as_json:
        terminal.print_json([_fields(one) for one in found])
    elif not found:
        terminal.info("No running workers. Start one with windlass worker module:app")
    elif terminal.out().width < terminal.NARROW_WIDTH:
        _stack(found)
    else:
        _table(found)


async def _workers(url: str | None, app: str | None) -> Sequence[LiveWorker]:
    async with open_client(url, app) as client:
        return await client.workers()


def _table(found: Sequence[LiveWorker]) -> None:
    table = terminal.table(
        "worker", "state", "uptime", "last claim", "running", "free", "tasks", "queues"
    )
    table.columns[0].min_width = max(len(one.name) for one in found)
    table.columns[1].min_width = len("stopping")
    for one in found:
        table.add_row(
            escape(one.name),
            _state(one),
            terminal.ago(one.started_at).removesuffix(" ago"),
            _last_claim(one),
            str(one.running),
            str(one.free),
            str(len(one.tasks)),
            escape(_queues(one)),
        )
    terminal.out().print(table)


def _stack(found: Sequence[LiveWorker]) -> None:
    console = terminal.out()
    for one in found:
        console.print(f"{escape(one.name)} {_state(one)}", soft_wrap=True)
        uptime = terminal.ago(one.started_at).removesuffix(" ago")
        console.print(f"  uptime {uptime}, last claim {_last_claim(one)}, running {one.running}")
        console.print(f"  {escape(_queues(one))}", soft_wrap=True)


def _state(one: LiveWorker) -> str:
    if one.unresponsive:
        return "[red]unresponsive[/]"
    return "[yellow]stopping[/]" if one.stopping else "[green]healthy[/]"


def _last_claim(one: LiveWorker) -> str:
    return "never" if one.last_claim_at is None else terminal.ago(one.last_claim_at)


def _queues(one: LiveWorker) -> str:
    return ",".join(f"{name}={slots}" for name, slots in one.queues.items())


def _fields(one: LiveWorker) -> dict[str, Any]:
    return {
        "name": one.name,
        "host": one.host,
        "pid": one.pid,
        "version": one.version,
        "queues": dict(one.queues),
        "tasks": list(one.tasks),
        "running": one.running,
        "free": one.free,
        "stopping": one.stopping,
        "unresponsive": one.unresponsive,
        "startedAt": terminal.iso(one.started_at),
        "seenAt": terminal.iso(one.seen_at),
        "lastClaimAt": terminal.iso(one.last_claim_at),
    }
