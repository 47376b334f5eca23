"""A worker's settings."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.errors import ConfigurationError
from windlass.core.ids import uuid7
from windlass.core.job.row import DEFAULT_QUEUE
from windlass.store import Retention

RELEASE = 6.0


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid7().hex[-6:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """`queues` maps each queue to its slots. `burst` ends the worker when nothing is left to do.

    `lease` overrules what the tasks say about theirs; None leaves it to them. `follow` is how
    often, in seconds, running attempts look whether they are canceled. A stop waits for running
    tasks for `grace` seconds, and then for what it told to end for `release` seconds. With
    `isolate`, a job that was running when a worker died runs in a process of its own. Without
    `schedules`, their ticks are left to other workers; without `company`, batch tasks take what is
    there, whatever their `wait` is. Every `heartbeat` seconds it shows itself to others.
    """

    queues: Mapping[str, int] = field(default_factory=lambda: {DEFAULT_QUEUE: 10})
    name: str = field(default_factory=worker_name)
    lease: float | None = None
    poll: float = 1.0
    sweep: float = 1.0
    follow: float = 0.25
    grace: float = 10.0
    release: float = RELEASE
    burst: bool = False
    isolate: bool = True
    schedules: bool = True
    company: bool = True
    heartbeat: float = 10.0
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if not self.queues or min(self.queues.values()) < 1:
            raise ConfigurationError(
                f"queues is {dict(self.queues)}; name at least one, each with a slot or more"
            )
        for name in ("lease", "poll", "sweep", "follow", "heartbeat"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} is {value!r}; it must be more than 0 seconds")
