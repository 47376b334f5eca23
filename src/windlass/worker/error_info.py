"""What an attempt raised, told so that its outcome can be decided where the error is not at hand.

In a child process the error's class and the task's own lists of errors are there; in the worker
they may not be. So the child judges (`Raised.of`), and the worker raises a `RemoteError` with that.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from windlass.core.errors import Cancel, RetryAfter, Snooze, TerminalError, WindlassError
from windlass.core.job.row import NewJob
from windlass.core.sizes import KIB, MAX_NAME, MAX_TRACEBACK
from windlass.task_spec import TaskOptions
from windlass.worker.child import messages
from windlass.worker.event_buffer import storable
from windlass.worker.suspension import Suspend, suspension_in

MAX_MESSAGE = 4 * KIB
OURS = str(Path(__file__).parents[1]) + os.sep
PYTHONS = sysconfig.get_path("stdlib") + os.sep


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An error as it is stored, and whether it is worth another attempt. Always fits.

    `code` is an error's own, or its type's name. `delay` is what a RetryAfter asks for.
    """

    type: str
    message: str
    traceback: str
    code: str
    retryable: bool = True
    delay: float | None = None

    @staticmethod
    def of(error: BaseException, options: TaskOptions) -> Raised:
        name = type(error).__name__
        return Raised(
            type=storable(name, MAX_NAME),
            message=message_of(error),
            traceback=trace(error),
            code=storable(error.code if isinstance(error, WindlassError) else name, MAX_NAME),
            retryable=retryable(error, options),
            delay=error.delay if isinstance(error, RetryAfter) else None,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class RemoteError(Exception):
    """Raised in the worker for what a task raised in its child process."""

    def __init__(self, raised: Raised) -> None:
        super().__init__(f"{raised.type}: {raised.message}")
        self.raised = raised


class UnfitError(RemoteError):
    """The child could not begin: it found no task, or its app could not be had there."""


def retryable(error: BaseException, options: TaskOptions) -> bool:
    if isinstance(error, (TerminalError, *options.terminal_on)):
        return False
    return not options.retry_on or isinstance(error, (RetryAfter, *options.retry_on))


def message_of(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a message that cannot be made hides no error
        message = ""
    return storable(message or type(error).__name__, MAX_MESSAGE)


def trace(error: BaseException) -> str:
    """The traceback from the task's own code on; the end of it, where the news is."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    every = [told]
    for one in every:  # which grows meanwhile
        del one.stack[: _way_in(one.stack)]
        more = (one.__cause__, one.__context__, *(one.exceptions or ()))
        every += [other for other in more if other is not None]
    data = "".join(told.format()).encode("utf-8", "replace")
    return data[-MAX_TRACEBACK:].decode("utf-8", "ignore")


def _way_in(stack: traceback.StackSummary) -> int:
    """How many frames lead from the worker to the user's code; 0 if none of that is in it."""
    if not stack or not stack[0].filename.startswith(OURS):
        return 0
    return next((n for n, frame in enumerate(stack) if _theirs(frame.filename)), 0)


def _theirs(file: str) -> bool:
    """Neither ours nor Python's own, through which we call; what is installed may be theirs."""
    if file.startswith((OURS, "<frozen ")):
        return False
    return not file.startswith(PYTHONS) or "-packages" in file


def ending_of(error: BaseException) -> dict[str, Any] | None:
    """No error, but the task's own word on how its attempt ends."""
    waits = suspension_in(error)
    if waits is not None:
        return {
            "suspend": [str(job_id) for job_id in waits.awaits],
            "children": [messages.to_json(new) for new in waits.children],
            "timeout": waits.timeout,
            "signals": waits.signals,
        }
    match error:
        case Snooze(delay=delay):
            return {"snooze": delay, "message": message_of(error)}
        case Cancel(reason=reason):
            return {"cancel": storable(reason, MAX_MESSAGE)}
    return None


def ending_from(told: dict[str, Any]) -> Snooze | Cancel | Suspend:
    if "suspend" in told:
        return Suspend(
            awaits=[UUID(job_id) for job_id in told["suspend"]],
            children=[messages.from_json(NewJob, new) for new in told["children"]],
            timeout=told["timeout"],
            signals=told["signals"],
        )
    if "snooze" in told:
        return Snooze(told["snooze"], told["message"])
    return Cancel(told["cancel"])
