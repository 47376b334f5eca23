"""A job and its events, as JSON for scripts and in words for people."""

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
from windlass.core.job.failure import Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import State

SEALED = "(cannot be read here: name the app that has the key, -A module:app)"
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
        return SEALED


def summary(row: JobRow) -> dict[str, Any]:
    """What lists show: nothing that the codec would have to open."""
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


def whole(client: Client, row: JobRow, attempts: list[Attempt]) -> dict[str, Any]:
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
        "attempts": [_attempt(client, one) for one in attempts],
    }


def edges(row: JobRow, its: Edges) -> dict[str, Any]:
    """The flow that it belongs to, whom it waits or waited for, and who waits for it."""
    return {
        "flowId": str(row.flow_id) if row.flow_id else None,
        "waitingFor": row.waiting_for,
        "onParent": row.on_parent.value,
        "dependsOn": [str(job) for job in its.parents],
        "awaitedBy": [str(job) for job in its.children],
    }


def error(client: Client, failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    said = decoded(client, failure.body, Purpose.ERROR)
    words = said if isinstance(said, dict) else {"message": said}
    return {
        "code": failure.code,
        "error_type": failure.kind.value,
        "step": failure.step,
        "attempt": failure.attempt,
        "at": iso(failure.at),
        **words,
    }


def _attempt(client: Client, one: Attempt) -> dict[str, Any]:
    return {
        "number": one.number,
        "worker": one.worker,
        "queuedAt": iso(one.queued_at),
        "startedAt": iso(one.started_at),
        "endedAt": iso(one.ended_at),
        "outcome": one.outcome.value if one.outcome else None,
        "error": error(client, one.error),
        "delay": one.delay,
        "percent": one.percent,
        "stage": one.stage,
    }


def event(client: Client, line: Event) -> dict[str, Any]:
    data = dict(line.data)
    if line.body is not None and line.type is not EventType.RESYNC:
        name, purpose = _BODIES.get(line.type, (None, Purpose.EVENT))
        said = decoded(client, line.body, purpose)
        data |= {name: said} if name else said if isinstance(said, dict) else {"message": said}
    return {
        "id": line.wire_id,
        "seq": line.seq,
        "at": iso(line.at),
        "type": line.type.value,
        "jobId": str(line.job_id),
        "correlationId": line.correlation_id,
        "data": data,
    }


def words(client: Client, line: Event) -> str:
    """One event as a line for people, in rich's markup."""
    data = event(client, line)["data"]
    when = f"[dim]{terminal.clock(line.at)}[/]"
    if "status" in data and line.type is not EventType.STEP_STATUS:
        status = State(data["status"])
        parts = [terminal.state(status)]
        if status is State.RUNNING:
            parts.append(f"attempt {data['attempt']} on {escape(str(data.get('worker')))}")
        if data.get("error"):
            said = data.get("errors")
            message = said.get("message") if isinstance(said, dict) else said
            parts.append(escape(f"{data['error']['code']}{f': {message}' if message else ''}"))
        if data.get("delay") is not None:
            wait = data["delay"]
            parts.append(f"(again in {wait:.1f} s)" if wait else "(again at once)")
        if status is State.CANCELED and data.get("message"):
            parts.append(escape(str(data["message"])))
        return f"{when} {' '.join(parts)}"
    if line.type is EventType.RESYNC:
        now = terminal.state(State(data["state"]))
        return f"{when} {now} [dim](earlier lines are past keeping)[/]"
    colour = {EventType.WARNING: "yellow", EventType.ERROR: "red"}.get(line.type)
    kind = line.type.value if line.type is not EventType.LOG else str(data.get("level", "info"))
    skipped = {"level", "phase"}
    text = data.get("message") or " ".join(
        f"{key}={value}" for key, value in data.items() if value is not None and key not in skipped
    )
    if line.type is EventType.STEP_PROGRESS:
        stage = data.get("stage") or data.get("step") or ""
        text = " ".join(filter(None, [f"{data['progressPct']}%", stage, data.get("message")]))
    return f"{when} {f'[{colour}]{kind}[/]' if colour else kind} {escape(str(text))}"
