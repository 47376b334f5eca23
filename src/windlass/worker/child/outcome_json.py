"""JSON of outcomes other than a result or an error: suspend, snooze and cancel.

A child process sends the outcome, and its worker raises it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.errors import Cancel, Snooze
from windlass.core.job.new_job import NewJob
from windlass.worker.child import job_json
from windlass.worker.event_buffer import storable_text
from windlass.worker.execution.error_info import MAX_ERROR_MESSAGE, error_message
from windlass.worker.suspension import Suspend, find_suspension


def encode_outcome(error: BaseException) -> dict[str, Any] | None:
    """Encode Suspend, Snooze and Cancel, which end an attempt without an error; else None."""
    suspend = find_suspension(error)
    if suspend is not None:
        return {
            "suspend": [str(job_id) for job_id in suspend.awaits],
            "children": [job_json.to_json(new) for new in suspend.children],
            "timeout": suspend.timeout,
            "signals": suspend.signals,
        }
    match error:
        case Snooze(delay=delay):
            return {"snooze": delay, "message": error_message(error)}
        case Cancel(reason=reason):
            return {"cancel": storable_text(reason, MAX_ERROR_MESSAGE)}
    return None


def decode_outcome(message: dict[str, Any]) -> Snooze | Cancel | Suspend:
    if "suspend" in message:
        return Suspend(
            awaits=[UUID(job_id) for job_id in message["suspend"]],
            children=[job_json.from_json(NewJob, new) for new in message["children"]],
            timeout=message["timeout"],
            signals=message["signals"],
        )
    if "snooze" in message:
        return Snooze(message["snooze"], message["message"])
    return Cancel(message["cancel"])
