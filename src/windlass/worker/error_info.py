"""Errors of attempts, in a form that crosses process boundaries.

A child process has the error's class and the task's error lists; the worker may not. The child
classifies the error (`ErrorInfo.from_error`), and the worker raises a `RemoteError` with it.
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
from windlass.core.job.new_job import NewJob
from windlass.core.size_limits import KIB, MAX_NAME, MAX_TRACEBACK
from windlass.task_spec import TaskOptions
from windlass.worker.child import messages
from windlass.worker.event_buffer import storable_text
from windlass.worker.suspension import Suspend, find_suspension

MAX_MESSAGE = 4 * KIB
PACKAGE_DIR = str(Path(__file__).parents[1]) + os.sep
STDLIB_DIR = sysconfig.get_path("stdlib") + os.sep


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An error as it is stored, cut to the size limits, and whether it is retryable.

    `code` is the error's own code, or the name of its type. `delay` comes from a RetryAfter.
    """

    type: str
    message: str
    traceback: str
    code: str
    retryable: bool = True
    delay: float | None = None

    @staticmethod
    def from_error(error: BaseException, options: TaskOptions) -> ErrorInfo:
        name = type(error).__name__
        code = error.code if isinstance(error, WindlassError) else name
        return ErrorInfo(
            type=storable_text(name, MAX_NAME),
            message=error_message(error),
            traceback=format_traceback(error),
            code=storable_text(code, MAX_NAME),
            retryable=is_retryable(error, options),
            delay=error.delay if isinstance(error, RetryAfter) else None,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class RemoteError(Exception):
    """Raised in the worker for an error that a task raised in its child process."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(f"{info.type}: {info.message}")
        self.info = info


class ChildSetupError(RemoteError):
    """The child could not start the task: it did not find the task or could not load its app."""


def is_retryable(error: BaseException, options: TaskOptions) -> bool:
    if isinstance(error, (TerminalError, *options.terminal_on)):
        return False
    return not options.retry_on or isinstance(error, (RetryAfter, *options.retry_on))


def error_message(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        message = ""
    return storable_text(message or type(error).__name__, MAX_MESSAGE)


def format_traceback(error: BaseException) -> str:
    """Format the traceback from the task's own code on, cut at the start if it is too long."""
    formatted = traceback.TracebackException.from_exception(error, compact=True)
    exceptions = [formatted]
    for exception in exceptions:  # grows during the loop
        del exception.stack[: _count_worker_frames(exception.stack)]
        related = (exception.__cause__, exception.__context__, *(exception.exceptions or ()))
        exceptions += [other for other in related if other is not None]
    data = "".join(formatted.format()).encode("utf-8", "replace")
    return data[-MAX_TRACEBACK:].decode("utf-8", "ignore")


def _count_worker_frames(stack: traceback.StackSummary) -> int:
    """Count the frames between the worker and the user's code; 0 if there is no user code."""
    if not stack or not stack[0].filename.startswith(PACKAGE_DIR):
        return 0
    return next((n for n, frame in enumerate(stack) if _is_user_file(frame.filename)), 0)


def _is_user_file(file: str) -> bool:
    """Whether a file belongs neither to Windlass nor to the standard library.

    Installed packages count as user code.
    """
    if file.startswith((PACKAGE_DIR, "<frozen ")):
        return False
    return not file.startswith(STDLIB_DIR) or "-packages" in file


def encode_ending(error: BaseException) -> dict[str, Any] | None:
    """Encode Suspend, Snooze and Cancel, which end an attempt without an error; else None."""
    suspend = find_suspension(error)
    if suspend is not None:
        return {
            "suspend": [str(job_id) for job_id in suspend.awaits],
            "children": [messages.to_json(new) for new in suspend.children],
            "timeout": suspend.timeout,
            "signals": suspend.signals,
        }
    match error:
        case Snooze(delay=delay):
            return {"snooze": delay, "message": error_message(error)}
        case Cancel(reason=reason):
            return {"cancel": storable_text(reason, MAX_MESSAGE)}
    return None


def decode_ending(message: dict[str, Any]) -> Snooze | Cancel | Suspend:
    if "suspend" in message:
        return Suspend(
            awaits=[UUID(job_id) for job_id in message["suspend"]],
            children=[messages.from_json(NewJob, new) for new in message["children"]],
            timeout=message["timeout"],
            signals=message["signals"],
        )
    if "snooze" in message:
        return Snooze(message["snooze"], message["message"])
    return Cancel(message["cancel"])
