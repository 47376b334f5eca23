"""`windlass workers list`: the running workers."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client
from windlass.core.worker_presence import LiveWorker
from windlass.schemas.workers import Workers

commands = typer.Typer(no_args_is_help=True, help="List running workers.")


@commands.callback()
def workers() -> None:
    """List running workers."""


@commands.command("list")
def list_workers(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List running workers with their queues and last claim.

    A dead worker is listed for up to 30 seconds. An unresponsive worker is
    running and has free slots, but has stopped claiming jobs: restart it.
    """
    found = run(_workers(url, app))
    if as_json:
        terminal.print_json(Workers.of(found).to_json())
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
    table.columns[0].min_width = max(len(worker.name) for worker in found)
    table.columns[1].min_width = len("stopping")
    for worker in found:
        table.add_row(
            escape(worker.name),
            _state(worker),
            terminal.ago(worker.started_at).removesuffix(" ago"),
            _last_claim(worker),
            str(worker.running),
            str(worker.free),
            str(len(worker.tasks)),
            escape(_queues(worker)),
        )
    terminal.out().print(table)


def _stack(found: Sequence[LiveWorker]) -> None:
    console = terminal.out()
    for worker in found:
        console.print(f"{escape(worker.name)} {_state(worker)}", soft_wrap=True)
        uptime = terminal.ago(worker.started_at).removesuffix(" ago")
        console.print(
            f"  uptime {uptime}, last claim {_last_claim(worker)}, running {worker.running}"
        )
        console.print(f"  {escape(_queues(worker))}", soft_wrap=True)


def _state(worker: LiveWorker) -> str:
    if worker.unresponsive:
        return "[red]unresponsive[/]"
    return "[yellow]stopping[/]" if worker.stopping else "[green]healthy[/]"


def _last_claim(worker: LiveWorker) -> str:
    return "never" if worker.last_claim_at is None else terminal.ago(worker.last_claim_at)


def _queues(worker: LiveWorker) -> str:
    return ",".join(f"{name}={slots}" for name, slots in worker.queues.items())
