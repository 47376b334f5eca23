"""Configuration of one worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.core.errors import ConfigurationError
from windlass.core.ids import uuid7
from windlass.core.job.new_job import DEFAULT_QUEUE
from windlass.store import Retention

DEFAULT_RELEASE_TIMEOUT = 6.0


def worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{uuid7().hex[-6:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Configuration of one worker; times are in seconds.

    `queues` maps each queue to its number of slots. `burst` ends the worker when its queues are
    empty. `lease` overrides the leases of the tasks. Every `cancel_poll_interval` seconds, running
    attempts are checked for a cancel request. A stop waits `grace` seconds for running tasks, then
    `release_timeout` seconds for tasks that it cancelled. With `isolate`, a job that was running
    when a worker died runs in a child process. Without `schedules`, this worker enqueues no
    scheduled jobs. Without `maintenance`, it promotes, rescues and prunes no jobs: other workers
    must. Without `wait_for_batch`, batch tasks ignore their `wait`. Every `presence_interval`
    seconds the worker updates its presence record.
    """

    queues: Mapping[str, int] = field(default_factory=lambda: {DEFAULT_QUEUE: 10})
    name: str = field(default_factory=worker_name)
    lease: float | None = None
    poll_interval: float = 1.0
    sweep_interval: float = 1.0
    cancel_poll_interval: float = 0.25
    grace: float = 10.0
    release_timeout: float = DEFAULT_RELEASE_TIMEOUT
    burst: bool = False
    isolate: bool = True
    schedules: bool = True
    maintenance: bool = True
    wait_for_batch: bool = True
    presence_interval: float = 10.0
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if not self.queues or min(self.queues.values()) < 1:
            raise ConfigurationError(
                f"queues is {dict(self.queues)}; "
                "name at least one queue, each with at least one slot"
            )
        for name in (
            "lease",
            "poll_interval",
            "sweep_interval",
            "cancel_poll_interval",
            "presence_interval",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} is {value!r}; it must be more than 0 seconds")
