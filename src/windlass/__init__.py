"""Durable jobs for Python: never lost, never finished twice, visible while they run."""

from __future__ import annotations

from windlass.app import Windlass
from windlass.core.admission.gates import Limit
from windlass.core.codec import EncryptingCodec
from windlass.core.decisions.retry import exponential, fixed, schedule
from windlass.core.errors import (
    AuthenticationError,
    Cancel,
    ChildrenFailed,
    CodecError,
    ConfigurationError,
    ConflictError,
    ConstraintViolation,
    InsufficientResources,
    InvalidArgumentError,
    InvalidInput,
    InvalidResult,
    JobFailedError,
    MissingInput,
    NotFoundError,
    QuotaExceeded,
    RequestError,
    RetryAfter,
    SchemaError,
    Snooze,
    StaleLeaseError,
    StoreCorruptError,
    StoreDeniedError,
    StoreError,
    StoreUnavailableError,
    TaskError,
    TerminalError,
    TooLargeError,
    WindlassError,
)
from windlass.core.job.dependency import FlowStats
from windlass.core.job.progress import StageMap
from windlass.core.job.row import NewJob
from windlass.core.job.state import State
from windlass.flow import Flow, FlowRun, Node, Nodes, chain, group
from windlass.job import Job
from windlass.limits import Limited, Limits
from windlass.schedule_records import Planned
from windlass.schedules import Schedules
from windlass.server.config import Door, ServerConfig
from windlass.task import Call, Task, Tasks
from windlass.worker import Batch, Context, Item, Worker, WorkerConfig

__all__ = [
    "AuthenticationError",
    "Batch",
    "Call",
    "Cancel",
    "ChildrenFailed",
    "CodecError",
    "ConfigurationError",
    "ConflictError",
    "ConstraintViolation",
    "Context",
    "Door",
    "EncryptingCodec",
    "Flow",
    "FlowRun",
    "FlowStats",
    "InsufficientResources",
    "InvalidArgumentError",
    "InvalidInput",
    "InvalidResult",
    "Item",
    "Job",
    "JobFailedError",
    "Limit",
    "Limited",
    "Limits",
    "MissingInput",
    "NewJob",
    "Node",
    "Nodes",
    "NotFoundError",
    "Planned",
    "QuotaExceeded",
    "RequestError",
    "RetryAfter",
    "Schedules",
    "SchemaError",
    "ServerConfig",
    "Snooze",
    "StageMap",
    "StaleLeaseError",
    "State",
    "StoreCorruptError",
    "StoreDeniedError",
    "StoreError",
    "StoreUnavailableError",
    "Task",
    "TaskError",
    "Tasks",
    "TerminalError",
    "TooLargeError",
    "Windlass",
    "WindlassError",
    "Worker",
    "WorkerConfig",
    "chain",
    "exponential",
    "fixed",
    "group",
    "schedule",
]
