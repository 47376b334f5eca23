"""Errors of attempts, in a form that crosses process boundaries.

A child process knows the error's class and the task's error lists; the worker may not know them.
The child classifies the error (`ErrorInfo.from_error`), and the worker raises a `RemoteError`.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from windlass.core.errors import RetryAfter, TerminalError, WindlassError
from windlass.core.size_limits import KIB, MAX_NAME, MAX_TRACEBACK
from windlass.task_spec import TaskOptions
from windlass.worker.event_buffer import storable_text

MAX_ERROR_MESSAGE = 4 * KIB
PACKAGE_DIR = str(Path(__file__).parents[2]) + os.sep
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
    return storable_text(message or type(error).__name__, MAX_ERROR_MESSAGE)


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
