"""The error classes of Windlass.

    WindlassError
    ├── TaskError                 raised by a task to end its attempt
    │   ├── TerminalError           never retry
    │   │   ├── InvalidInput          the arguments are invalid
    │   │   ├── InvalidResult         the return value cannot be stored
    │   │   ├── MissingInput          something that the arguments refer to is missing
    │   │   ├── ConfigurationError    the worker or app is configured wrongly
    │   │   ├── AuthenticationError   an external system refused the credentials
    │   │   ├── QuotaExceeded         a quota is exhausted; waiting does not help
    │   │   ├── InsufficientResources the job needs more than this machine has
    │   │   ├── ConstraintViolation   a constraint of external data is violated
    │   │   └── ChildrenFailed        awaited child jobs ended without success
    │   ├── RetryAfter              retry after this delay (counted)
    │   ├── Snooze                  run again after this delay (not counted)
    │   └── Cancel                  end as canceled
    ├── RequestError              the request cannot be done; repeating it does not help
    │   ├── InvalidArgumentError    a value is invalid
    │   ├── TooLargeError           payload, result, checkpoint or event over its size limit
    │   ├── NotFoundError           no such job, or no access
    │   ├── ConflictError           the job's state forbids it
    │   └── StaleLeaseError         the attempt no longer holds its lease
    ├── StoreError                the store failed; the outcome is unknown, repeat the call
    │   ├── StoreUnavailableError   disk full, I/O error, locked for too long, unreachable
    │   ├── StoreDeniedError        the server refused the API key or its permission
    │   ├── StoreCorruptError       the database is damaged
    │   └── SchemaError             the schema is too old, too new or modified
    ├── CodecError                a value cannot be encoded or decoded
    └── JobFailedError            the awaited job ended without success

Each class has a stable `code`, used in the API and in logs instead of the class name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.core.duration import Duration


def _seconds(delay: Duration) -> float:
    from windlass.core.duration import to_seconds  # noqa: PLC0415 - it imports this module

    return to_seconds(delay, "delay")


class WindlassError(Exception):
    code: ClassVar[str] = "windlass_error"


class TaskError(WindlassError):
    code: ClassVar[str] = "task_error"


class TerminalError(TaskError):
    code: ClassVar[str] = "terminal"


class InvalidInput(TerminalError):  # noqa: N818 - users raise these
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
        super().__init__(message or f"run again after {self.delay:g} s")


class Cancel(TaskError):  # noqa: N818
    code: ClassVar[str] = "cancel"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the task canceled itself")
        self.reason = reason


class RequestError(WindlassError):
    code: ClassVar[str] = "request"


class InvalidArgumentError(RequestError, ValueError):
    """An invalid value. `problems` are (argument path, message) pairs of a task's arguments."""

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
