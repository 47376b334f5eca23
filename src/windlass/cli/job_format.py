"""Formats of jobs and events: JSON for scripts, text for people."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.terminal import iso
from windlass.client import Client
from windlass.core.admission.gates import limit_name
from windlass.core.codec import Purpose
from windlass.core.errors import CodecError
from windlass.core.event import Event, EventType
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import CRASHED, Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

ENCRYPTED = "(encrypted: give the app that has the key, -A module:app)"
_INSTANTS = {
    "created_at": "createdAt",
    "queued_at": "queuedAt",
    "first_started_at": "firstStartedAt",
    "started_at": "startedAt",
    "ended_at": "endedAt",
    "updated_at": "updatedAt",
    "due_at": "dueAt",
    "expires_at": "expiresAt",
    "cancel_at": "cancelRequestedAt",
}
_BODIES = {
    EventType.JOB_COMPLETED: ("output", Purpose.RESULT),
    EventType.JOB_FAILED: ("errors", Purpose.ERROR),
    EventType.JOB_CANCELLED: ("errors", Purpose.ERROR),
    EventType.JOB_STATUS: ("errors", Purpose.ERROR),
}


def decoded(client: Client, data: bytes | None, purpose: Purpose) -> Any:
    if data is None:
        return None
    try:
        return client.codec.decode(data, purpose)
    except (CodecError, UnicodeDecodeError):
        return ENCRYPTED


def summary(row: JobRow) -> dict[str, Any]:
    """Format a job for lists, without fields that the codec must decode."""
    return {
        "id": str(row.id),
        "task": row.task,
        "queue": row.queue,
        "state": row.state.value,
        "percent": row.percent,
        "stage": row.stage,
        "phase": row.phase,
        "attempt": row.attempt,
        "retryCount": row.retry_count,
        "crashCount": row.crash_count,
        "priority": row.priority,
        "held": row.held,
        "limitKey": row.limit_key,
        "gate": None if row.gate is None else limit_name(row.gate),
        "worker": row.worker,
        "owner": row.owner,
        "team": row.team,
        "tags": list(row.tags),
        "error": row.error.code if row.error else None,
        "retryOf": str(row.retry_of) if row.retry_of else None,
        "retriedAs": str(row.retried_as) if row.retried_as else None,
        **{wire: iso(getattr(row, name)) for name, wire in _INSTANTS.items()},
    }


def details(client: Client, row: JobRow, attempts: list[Attempt]) -> dict[str, Any]:
    return summary(row) | {
        "payload": decoded(client, row.payload, Purpose.PAYLOAD),
        "result": decoded(client, row.result, Purpose.RESULT),
        "lastError": error(client, row.error),
        "headers": dict(row.headers),
        "requestId": row.request_id,
        "uniqueKey": row.unique_key,
        "cancelReason": row.cancel_reason,
        "canResume": row.can_resume,
        "lastCompletedStep": row.last_step,
        "attempts": [_attempt(client, attempt) for attempt in attempts],
    }


def edges(row: JobRow, edges: Edges) -> dict[str, Any]:
    """Format the flow, parents and children of a job."""
    return {
        "flowId": str(row.flow_id) if row.flow_id else None,
        "waitingFor": row.waiting_for,
        "onParent": row.on_parent.value,
        "dependsOn": [str(job) for job in edges.parents],
        "awaitedBy": [str(job) for job in edges.children],
    }


def error(client: Client, failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    body = decoded(client, failure.body, Purpose.ERROR)
    fields = body if isinstance(body, dict) else {"message": body}
    return {
        "code": failure.code,
        "error_type": failure.kind.value,
        "step": failure.step,
        "attempt": failure.attempt,
        "at": iso(failure.at),
        **fields,
    }


def _attempt(client: Client, attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "worker": attempt.worker,
        "queuedAt": iso(attempt.queued_at),
        "startedAt": iso(attempt.started_at),
        "endedAt": iso(attempt.ended_at),
        "outcome": attempt.outcome.value if attempt.outcome else None,
        "error": error(client, attempt.error),
        "delay": attempt.delay,
        "percent": attempt.percent,
        "stage": attempt.stage,
    }


def event_json(client: Client, event: Event) -> dict[str, Any]:
    data = dict(event.data)
    if event.body is not None and event.type is not EventType.RESYNC:
        name, purpose = _BODIES.get(event.type, (None, Purpose.EVENT))
        body = decoded(client, event.body, purpose)
        data |= {name: body} if name else body if isinstance(body, dict) else {"message": body}
    return {
        "id": event.wire_id,
        "seq": event.seq,
        "at": iso(event.at),
        "type": event.type.value,
        "jobId": str(event.job_id),
        "correlationId": event.correlation_id,
        "data": data,
    }


def _error_text(code: str, message: str | None) -> str:
    if message:
        return f"{code}: {message}"
    return "worker lost" if code == CRASHED else code


def text_line(client: Client, event: Event) -> str:
    """Format an event as a line of rich markup."""
    data = event_json(client, event)["data"]
    when = f"[dim]{terminal.clock(event.at)}[/]"
    if "status" in data and event.type is not EventType.STEP_STATUS:
        status = State(data["status"])
        parts = [terminal.state(status)]
        if status is State.RUNNING:
            parts.append(f"attempt {data['attempt']} on {escape(str(data.get('worker')))}")
        if data.get("error"):
            errors = data.get("errors")
            message = errors.get("message") if isinstance(errors, dict) else errors
            parts.append(escape(_error_text(data["error"]["code"], message)))
        if data.get("delay") is not None:
            delay = data["delay"]
            parts.append(f"(next attempt in {delay:.1f} s)" if delay else "(next attempt now)")
        if status is State.CANCELED and data.get("message"):
            parts.append(escape(str(data["message"])))
        return f"{when} {' '.join(parts)}"
    if event.type is EventType.RESYNC:
        state = terminal.state(State(data["state"]))
        return f"{when} {state} [dim](earlier events were pruned)[/]"
    color = {EventType.WARNING: "yellow", EventType.ERROR: "red"}.get(event.type)
    kind = event.type.value if event.type is not EventType.LOG else str(data.get("level", "info"))
    skipped = {"level", "phase"}
    text = data.get("message") or " ".join(
        f"{key}={value}" for key, value in data.items() if value is not None and key not in skipped
    )
    if event.type is EventType.STEP_PROGRESS:
        stage = data.get("stage") or data.get("step") or ""
        text = " ".join(filter(None, [f"{data['progressPct']}%", stage, data.get("message")]))
    return f"{when} {f'[{color}]{kind}[/]' if color else kind} {escape(str(text))}"
