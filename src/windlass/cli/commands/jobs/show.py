"""`windlass jobs show`: all details of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, JobId, Url
from windlass.cli.event_loop import run
from windlass.cli.job_format import decoded, error_fields
from windlass.cli.job_lookup import find_job
from windlass.cli.store_connection import open_client
from windlass.core.clock import SECOND
from windlass.core.codec import Purpose
from windlass.core.job import failure_details
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger
from windlass.schemas.jobs import JobDetails

MAX_LISTED = 3  # parents or children shown
_FIELDS = (
    ("task", "task"), ("queue", "queue"), ("priority", "priority"), ("owner", "owner"),
    ("team", "team"), ("tags", "tags"), ("requestId", "request id"), ("uniqueKey", "unique key"),
    ("limitKey", "limit key"), ("gate", "waiting for"),
    ("createdAt", "created"), ("queuedAt", "queued"), ("startedAt", "started"),
    ("endedAt", "ended"), ("dueAt", "scheduled for"), ("expiresAt", "expires"),
    ("worker", "worker"), ("cancelRequestedAt", "cancel requested"),
    ("cancelReason", "cancel reason"),
    ("retryOf", "retry of"), ("retriedAs", "retried as"), ("lastCompletedStep", "last step"),
    ("arguments", "arguments"), ("result", "result"), ("flowId", "flow"),
)  # fmt: skip

OUTCOMES = {
    Trigger.SUCCEED: "succeeded",
    Trigger.FAIL: "failed",
    Trigger.GIVE_UP: "crashed, no retries left",
    Trigger.RETRY: "failed, retried",
    Trigger.CRASH: "crashed",
    Trigger.CANCEL: "canceled",
    Trigger.ABORT: "canceled by task",
    Trigger.SNOOZE: "snoozed",
    Trigger.SUSPEND: "suspended",
    Trigger.RELEASE: "released",
}  # as on the job page of the dashboard


def show(job: JobId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Show all details of a job."""
    run(_show(job, url, app, as_json=as_json))


async def _show(job: str, url: str | None, app: str | None, *, as_json: bool) -> None:
    async with open_client(url, app) as client:
        row = await client.get(await find_job(client, job))
        attempts = await client.store.insights.attempts(row.id) or []
        [edges] = await client.store.edges([row.id])
    fields = JobDetails.of_job(row, edges, attempts, client.codec).to_json()
    if as_json:
        terminal.print_json(fields)
        return
    fields["arguments"] = decoded(client, row.payload, Purpose.PAYLOAD)
    fields["result"] = decoded(client, row.result, Purpose.RESULT)
    console = terminal.out()
    console.print(
        f"[bold]{row.id}[/] {terminal.state(row.state)} {_progress(row)}".rstrip(), soft_wrap=True
    )
    for name, label in _FIELDS:
        if fields[name] not in (None, "", [], 0):
            console.print(
                f"  [dim]{label:<17}[/]{escape(terminal.plain(fields[name]))}", soft_wrap=True
            )
    _edges(row, edges, console)
    _attempts(row, attempts, console)
    if row.error is not None:
        _error(row, row.error, error_fields(client, row.error), console)


def _progress(row: JobRow) -> str:
    stage = f" in {row.stage}" if row.stage else ""
    return escape(f"{row.percent}%{stage}") if row.attempt else ""


def _edges(row: JobRow, edges: Edges, console: Console) -> None:
    """Print its parents and children."""
    label = f"waiting for {row.waiting_for:,}" if row.waiting_for else "depends on"
    for name, jobs in ((label, edges.parents), ("awaited by", edges.children)):
        if jobs:
            ids = ", ".join(str(job) for job in jobs[:MAX_LISTED])
            more = f" and {len(jobs) - MAX_LISTED:,} more" if len(jobs) > MAX_LISTED else ""
            console.print(f"  [dim]{name:<17}[/]{ids}{more}", soft_wrap=True)


def _attempts(row: JobRow, attempts: Sequence[Attempt], console: Console) -> None:
    if not attempts:
        return
    table = terminal.table("attempt", "started", "duration", "outcome", "worker")
    for attempt in attempts:
        duration = (
            terminal.span((attempt.ended_at - attempt.started_at) / SECOND)
            if attempt.ended_at is not None
            else "running"
        )
        # A task that stops on request did not cancel itself.
        requested = attempt.outcome is Trigger.ABORT and row.cancel_at is not None
        trigger = Trigger.CANCEL if requested else attempt.outcome
        outcome = "" if trigger is None else OUTCOMES.get(trigger, trigger.value)
        if attempt.error is not None:
            outcome += f": {attempt.error.code}"
        table.add_row(
            str(attempt.number),
            terminal.clock(attempt.started_at),
            duration,
            escape(outcome),
            escape(attempt.worker or ""),
        )
    console.print(table)


def _error(row: JobRow, failure: Failure, fields: dict[str, Any], console: Console) -> None:
    details = failure_details.details(failure, task=row.task, stage=row.stage)
    message = str(fields.get("message") or details.category)
    console.print(f"[red]{escape(details.summary)}[/]: {escape(message)}")
    if row.final:
        console.print(f"  {escape(details.category)}; {escape(details.advice)}")
    if row.can_resume:
        console.print(f"  windlass jobs resume {row.id} continues after step {row.last_step!r}")
    if fields.get("traceback"):
        console.print(escape(fields["traceback"].rstrip()), style="dim", soft_wrap=True)
