"""`windlass jobs show`: all that is known about one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from windlass.cli import job_format, terminal
from windlass.cli.store_options import AppPath, AsJson, JobId, Url, opened, run, which
from windlass.core.clock import SECOND
from windlass.core.job import failure
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger

SHOWN = 3  # jobs that it depends on
_SHOWN = (
    ("task", "task"), ("queue", "queue"), ("priority", "priority"), ("owner", "owner"),
    ("team", "team"), ("tags", "tags"), ("requestId", "request id"), ("uniqueKey", "unique key"),
    ("limitKey", "limit key"), ("gate", "waits at"),
    ("createdAt", "created"), ("queuedAt", "queued"), ("startedAt", "started"),
    ("endedAt", "ended"), ("dueAt", "due"), ("expiresAt", "expires"), ("worker", "worker"),
    ("cancelRequestedAt", "cancel asked"), ("cancelReason", "cancel reason"),
    ("retryOf", "retry of"), ("retriedAs", "retried as"), ("lastCompletedStep", "last step"),
    ("payload", "payload"), ("result", "result"), ("flowId", "flow"),
)  # fmt: skip


def show(job: JobId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Show all that is known about one job."""
    run(_show(job, url, app, as_json=as_json))


async def _show(job: str, url: str | None, app: str | None, *, as_json: bool) -> None:
    async with opened(url, app) as client:
        row = await client.get(await which(client, job))
        attempts = await client.store.attempts(row.id) or []
        [edges] = await client.store.edges([row.id])
        facts = job_format.whole(client, row, attempts) | job_format.edges(row, edges)
    if as_json:
        terminal.print_json(facts)
        return
    console = terminal.out()
    console.print(
        f"[bold]{row.id}[/] {terminal.state(row.state)} {_where(row)}".rstrip(), soft_wrap=True
    )
    for name, label in _SHOWN:
        if facts[name] not in (None, "", [], 0):
            console.print(
                f"  [dim]{label:<14}[/]{escape(terminal.plain(facts[name]))}", soft_wrap=True
            )
    _edges(row, edges, console)
    _attempts(row, attempts, console)
    _error(row, facts, console)


def _where(row: JobRow) -> str:
    stage = f" in {row.stage}" if row.stage else ""
    return escape(f"{row.percent}%{stage}") if row.attempt else ""


def _edges(row: JobRow, edges: Edges, console: Console) -> None:
    """Whom it waits for, or waited for, and who waits for it."""
    label = f"waits for {row.waiting_for:,}" if row.waiting_for else "depends on"
    for what, jobs in ((label, edges.parents), ("awaited by", edges.children)):
        if jobs:
            named = ", ".join(str(job) for job in jobs[:SHOWN])
            more = f" and {len(jobs) - SHOWN:,} more" if len(jobs) > SHOWN else ""
            console.print(f"  [dim]{what:<14}[/]{named}{more}", soft_wrap=True)


def _attempts(row: JobRow, attempts: Sequence[Attempt], console: Console) -> None:
    if not attempts:
        return
    table = terminal.table("attempt", "started", "took", "ended with", "worker")
    for one in attempts:
        took = (
            terminal.span((one.ended_at - one.started_at) / SECOND)
            if one.ended_at is not None
            else "still running"
        )
        # A task that stops because somebody asked it to did not cancel itself.
        asked = one.outcome is Trigger.ABORT and row.cancel_at is not None
        ended = "cancel" if asked else one.outcome.value if one.outcome else ""
        if one.error is not None:
            ended += f": {one.error.code}"
        table.add_row(
            str(one.number),
            terminal.clock(one.started_at),
            took,
            escape(ended),
            escape(one.worker or ""),
        )
    console.print(table)


def _error(row: JobRow, facts: dict[str, Any], console: Console) -> None:
    error = facts["lastError"]
    if error is None or row.error is None:
        return
    told = failure.details(row.error, task=row.task, stage=row.stage)
    console.print(f"[red]{escape(told.what)}[/]: {escape(str(error.get('message') or told.sort))}")
    if row.final:
        console.print(f"  {escape(told.sort)}; {escape(told.advice)}")
    if row.can_resume:
        console.print(f"  windlass jobs resume {row.id} goes on after step {row.last_step!r}")
    if error.get("traceback"):
        console.print(escape(error["traceback"].rstrip()), style="dim", soft_wrap=True)
