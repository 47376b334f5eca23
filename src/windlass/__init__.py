"""Durable background jobs for Python: never lost, never completed twice, observable."""

from __future__ import annotations

from windlass.app import Windlass
from windlass.core.admission.limit import Limit
from windlass.core.codec import EncryptingCodec
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
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import StageMap
from windlass.core.job.retry_policy import delays, exponential, fixed
from windlass.core.job.state import State
from windlass.core.version import version as _version
from windlass.flow import Flow, FlowRun, Node, Nodes, chain, group
from windlass.job import Job
from windlass.limits import Limits
from windlass.records.limit_records import LimitInfo
from windlass.records.schedule_records import ScheduleInfo
from windlass.schedules import Schedules
from windlass.server.config import AuthMode, ServerConfig
from windlass.task import Call, Task, Tasks
from windlass.worker import Batch, Context, Item, Worker, WorkerConfig

__version__ = _version()

__all__ = [
    "AuthMode",
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
    "LimitInfo",
    "Limits",
    "MissingInput",
    "NewJob",
    "Node",
    "Nodes",
    "NotFoundError",
    "QuotaExceeded",
    "RequestError",
    "RetryAfter",
    "ScheduleInfo",
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
    "delays",
    "exponential",
    "fixed",
    "group",
]
