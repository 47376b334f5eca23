"""Converts the error of an attempt to a `Failure`, the form in which the store keeps it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import ClassVar

from windlass.core.codec import Codec, Purpose
from windlass.core.job import failure as failures
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.size_limits import MAX_EVENT
from windlass.task_spec import TaskOptions
from windlass.worker.execution.error_info import (
    ErrorInfo,
)
from windlass.worker.execution.unknown_tasks import (
    UnknownTaskError,
)

log = logging.getLogger("windlass.worker")


class AttemptTimeoutError(TimeoutError):
    """The attempt exceeded its timeout. A TimeoutError raised by the task is an ordinary error."""

    code: ClassVar[str] = failures.TIMEOUT


def error_info_of(error: BaseException, options: TaskOptions | None = None) -> ErrorInfo:
    info = ErrorInfo.from_error(error, options or TaskOptions())
    if isinstance(error, AttemptTimeoutError | UnknownTaskError):
        return replace(info, code=error.code)
    return info


def failure_from_error(
    error: BaseException, codec: Codec, *, terminal: bool = False, step: str | None = None
) -> Failure:
    """Convert an error to a failure.

    Never raises, and the result is within the size limits: else the job could never be settled.
    """
    info = error_info_of(error)
    return failure_from_info(replace(info, retryable=info.retryable and not terminal), codec, step)


def failure_from_info(info: ErrorInfo, codec: Codec, step: str | None) -> Failure:
    kind = ErrorKind.RETRYABLE if info.retryable else ErrorKind.TERMINAL
    return Failure(code=info.code, kind=kind, step=step, body=encode_error(info, codec))


def encode_error(info: ErrorInfo, codec: Codec) -> bytes | None:
    error = {"type": info.type, "message": info.message, "traceback": info.traceback}
    try:
        body = codec.encode(error, Purpose.ERROR)
        if len(body) > MAX_EVENT:  # many characters were escaped
            body = codec.encode(error | {"traceback": None}, Purpose.ERROR)
    except Exception:
        log.exception("the codec could not encode an error (%s); only its code is stored", error)
        return None
    return body
