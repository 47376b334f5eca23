"""Durable jobs for Python: never lost, never finished twice, visible while they run."""

from __future__ import annotations

from windlass.app import Job, Task, Windlass
from windlass.core.errors import (
    Cancel,
    ConflictError,
    InvalidArgumentError,
    JobFailedError,
    NotFoundError,
    RetryAfter,
    Snooze,
    StoreError,
    TerminalError,
    WindlassError,
)
from windlass.core.retry import exponential, fixed, schedule
from windlass.core.state import State
from windlass.worker import Context, Worker, WorkerConfig

__all__ = [
    "Cancel",
    "ConflictError",
    "Context",
    "InvalidArgumentError",
    "Job",
    "JobFailedError",
    "NotFoundError",
    "RetryAfter",
    "Snooze",
    "State",
    "StoreError",
    "Task",
    "TerminalError",
    "Windlass",
    "WindlassError",
    "Worker",
    "WorkerConfig",
    "exponential",
    "fixed",
    "schedule",
]
