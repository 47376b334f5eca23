"""Every error Windlass raises, on one screen.

    WindlassError
    ├── TaskError                 raised by a task, to say how its attempt ends
    │   ├── TerminalError           never retry
    │   │   ├── InvalidInput          the arguments cannot be worked with
    │   │   ├── InvalidResult         what the task returned cannot be stored
    │   │   ├── MissingInput          something the arguments point to is gone
    │   │   ├── ConfigurationError    the worker is set up wrongly
    │   │   ├── AuthenticationError   the outside system refused us
    │   │   ├── QuotaExceeded         a limit that waiting will not lift
    │   │   ├── InsufficientResources this job needs more than there is
    │   │   ├── ConstraintViolation   the outside data forbids it
    │   │   └── ChildrenFailed        jobs that the task waits for ended without success
    │   ├── RetryAfter              retry, after this delay (counted)
    │   ├── Snooze                  come back after this delay (not counted)
    │   └── Cancel                  end as canceled
    ├── RequestError              what was asked cannot be done; asking again will not help
    │   ├── InvalidArgumentError    a value is wrong: which one, and why
    │   ├── TooLargeError           payload, result, checkpoint or event over its limit
    │   ├── NotFoundError           no such job (or not yours)
    │   ├── ConflictError           the job's state forbids it
    │   └── StaleLeaseError         the attempt that speaks no longer holds its lease
    ├── StoreError                the store could not answer; the outcome is unknown: repeat
    │   ├── StoreUnavailableError   disk full, I/O error, locked for too long, unreachable
    │   ├── StoreDeniedError        a server does not let the key do this, or knows no such key
    │   ├── StoreCorruptError       the file is not a sound database
    │   └── SchemaError             the schema is older, newer or altered
    ├── CodecError                bytes that cannot be encoded or decoded
    └── JobFailedError            the awaited job ended without success

Each class has a stable `code`: the wire and the logs carry that, never the class name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.core.duration import Duration


def _seconds(delay: Duration) -> float:
    from windlass.core.duration import seconds  # noqa: PLC0415 - which raises errors of this tree

    return seconds(delay, "delay")


class WindlassError(Exception):
    code: ClassVar[str] = "windlass_error"


class TaskError(WindlassError):
    code: ClassVar[str] = "task_error"


class TerminalError(TaskError):
    code: ClassVar[str] = "terminal"


class InvalidInput(TerminalError):  # noqa: N818 - tasks raise these words, users read them
    code: ClassVar[str] = "invalid_input"


class InvalidResult(TerminalError):  # noqa: N818
    code: ClassVar[str] = "invalid_result"


class MissingInput(TerminalError):  # noqa: N818
    code: ClassVar[str] = "missing_input"


class ConfigurationError(TerminalError):
    code: ClassVar[str] = "configuration"


class AuthenticationError(TerminalError):
    code: ClassVar[str] = "authentication"


class QuotaExceeded(TerminalError):  # noqa: N818
    code: ClassVar[str] = "quota_exceeded"


class InsufficientResources(TerminalError):  # noqa: N818
    code: ClassVar[str] = "insufficient_resources"


class ConstraintViolation(TerminalError):  # noqa: N818
    code: ClassVar[str] = "constraint_violation"


class ChildrenFailed(TerminalError):  # noqa: N818
    code: ClassVar[str] = "children_failed"


class RetryAfter(TaskError):  # noqa: N818
    code: ClassVar[str] = "retry_after"

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay = _seconds(delay)
        super().__init__(message or f"retry after {self.delay:g} s")


class Snooze(TaskError):  # noqa: N818
    code: ClassVar[str] = "snooze"

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay = _seconds(delay)
        super().__init__(message or f"come back after {self.delay:g} s")


class Cancel(TaskError):  # noqa: N818
    code: ClassVar[str] = "cancel"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task canceled itself")
        self.reason = reason


class RequestError(WindlassError):
    code: ClassVar[str] = "request"


class InvalidArgumentError(RequestError, ValueError):
    """`problems` are pairs: where in a task's arguments, and what is wrong there, if known."""

    code: ClassVar[str] = "invalid_argument"
    problems: Sequence[tuple[str, str]] = ()


class TooLargeError(RequestError):
    code: ClassVar[str] = "too_large"


class NotFoundError(RequestError, LookupError):
    code: ClassVar[str] = "not_found"


class ConflictError(RequestError):
    code: ClassVar[str] = "conflict"


class StaleLeaseError(RequestError):
    code: ClassVar[str] = "stale_lease"


class StoreError(WindlassError):
    code: ClassVar[str] = "store"


class StoreUnavailableError(StoreError):
    code: ClassVar[str] = "store_unavailable"


class StoreDeniedError(StoreError):
    code: ClassVar[str] = "store_denied"


class StoreCorruptError(StoreError):
    code: ClassVar[str] = "store_corrupt"


class SchemaError(StoreError):
    code: ClassVar[str] = "schema"


class CodecError(WindlassError):
    code: ClassVar[str] = "codec"


class JobFailedError(WindlassError):
    code: ClassVar[str] = "job_failed"

    def __init__(self, message: str, *, state: str, remote_traceback: str | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.remote_traceback = remote_traceback
