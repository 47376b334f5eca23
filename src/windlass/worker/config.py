"""A worker's settings."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.ids import uuid7
from windlass.core.job import DEFAULT_QUEUE
from windlass.core.lease import DEFAULT_LEASE
from windlass.store import Retention


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid7().hex[-6:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """`queues` maps each queue to its slots. `burst` ends the worker when nothing is left to do."""

    queues: Mapping[str, int] = field(default_factory=lambda: {DEFAULT_QUEUE: 10})
    name: str = field(default_factory=worker_name)
    lease: float = DEFAULT_LEASE
    poll: float = 1.0
    sweep: float = 1.0
    grace: float = 10.0
    burst: bool = False
    retention: Retention = field(default_factory=Retention)
