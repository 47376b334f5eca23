"""Prints events of a job: a JSON object per line for scripts, or text for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.job_format import body_fields, decoded
from windlass.client import Client
from windlass.core.codec import Purpose
from windlass.core.event import Event, EventType
from windlass.core.job.failure import CRASHED
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.schemas.events import EventView, event_data
from windlass.stores.event_decoder import EventDecoder

_PURPOSES = {
    EventType.JOB_COMPLETED: Purpose.RESULT,
    EventType.JOB_FAILED: Purpose.ERROR,
    EventType.JOB_CANCELLED: Purpose.ERROR,
    EventType.JOB_STATUS: Purpose.ERROR,
}


class EventPrinter:
    """Prints the events of one job after `after`, as JSON if `as_json`."""

    def __init__(
        self, client: Client, row: JobRow, after: int, console: Console, *, as_json: bool
    ) -> None:
        self._client = client
        self._row = row
        self._after = after
        self._console = console
        self._decoder: EventDecoder | None = None
        self._as_json = as_json

    async def print(self, event: Event) -> None:
        if not self._as_json:
            self._console.print(text_line(self._client, event), soft_wrap=True)
            return
        if self._decoder is None:
            self._decoder = EventDecoder(self._client.codec)
            # The summary of the final event includes earlier events.
            await self._decoder.catch_up(self._client.store, self._row.id, self._after)
        decoded_event = self._decoder.decode(event)
        view = EventView.of(decoded_event, event_data(decoded_event))
        terminal.print_json(view.to_json(), line=True)


def text_line(client: Client, event: Event) -> str:
    """Format an event as a line of rich markup."""
    when = f"[dim]{terminal.clock(event.at)}[/]"
    if event.type is EventType.RESYNC:
        state = terminal.state(State(event.data["state"]))
        return f"{when} {state} [dim](earlier events were pruned)[/]"
    body = body_fields(decoded(client, event.body, _PURPOSES.get(event.type, Purpose.EVENT)))
    if "status" in event.data and event.type is not EventType.STEP_STATUS:
        return f"{when} {_status_text(event.data, body)}"
    data = {**event.data, **body}
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


def _status_text(data: Any, body: dict[str, Any]) -> str:
    """Format a change of the state: attempt, error, delay, reason."""
    status = State(data["status"])
    parts = [terminal.state(status)]
    if status is State.RUNNING:
        parts.append(f"attempt {data['attempt']} on {escape(str(data.get('worker')))}")
    if data.get("error"):
        parts.append(escape(_error_text(data["error"]["code"], body.get("message"))))
    if data.get("delay") is not None:
        delay = data["delay"]
        parts.append(f"(next attempt in {delay:.1f} s)" if delay else "(next attempt now)")
    if status is State.CANCELED and data.get("message"):
        parts.append(escape(str(data["message"])))
    return " ".join(parts)


def _error_text(code: str, message: str | None) -> str:
    if message:
        return f"{code}: {message}"
    return "worker lost" if code == CRASHED else code
