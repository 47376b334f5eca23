"""Interface of a measured job queue, and the no-op job that every queue runs."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.round_config import RoundConfig

PAYLOAD_SIZE = 100  # bytes
DIGITS = 8
POLL_INTERVAL = 0.005  # seconds between two polls of a queue that cannot wait for jobs
EACH_COMMIT = "each commit"  # the default time of a sync
ROOT = Path(__file__).parents[2]
ROLES = "benchmarks.peers.child.roles"


def payload(number: int) -> str:
    """Return the argument of a job: its number, padded."""
    return f"{number:0{DIGITS}}".ljust(PAYLOAD_SIZE, "x")


def python_command(module: str) -> list[str]:
    """Return the command for a process with this adapter; append a role and its numbers.

    The process needs `ROOT` in PYTHONPATH.
    """
    return [sys.executable, "-P", "-m", ROLES, module]


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    from importlib import metadata  # noqa: PLC0415 - heavy; measured workers do not need it

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class QueueAdapter(Protocol):
    """One job queue, opened once in each process.

    `library` is the required module, `package` the package to install. `durability` describes the
    guarantee of a commit and the data kept of a job. `bulk` describes a bulk enqueue, and
    `concurrent` concurrent single enqueues (None: not supported). `server` is the kind of server
    that the queue needs. A slow queue gets only the part `job_share` of the jobs, so that a round
    ends.
    """

    library: ClassVar[str]
    package: ClassVar[str]
    durability: ClassVar[str]
    bulk: ClassVar[str | None]
    concurrent: ClassVar[str | None] = None
    server: ClassVar[str | None] = None
    job_share: ClassVar[float] = 1.0

    @classmethod
    def missing(cls) -> str | None:
        """Return why the queue cannot be measured here, or None if it can."""
        if find_spec(cls.library) is None:
            return f"not installed: pip install {cls.package}"
        return None

    @classmethod
    def version(cls) -> str | None:
        return installed(cls.package.partition("[")[0])

    @classmethod
    def program(cls, module: str) -> list[str]:
        """Return the command for producers and workers; `child/roles` defines them."""
        return python_command(module)

    @abstractmethod
    def __init__(self, config: RoundConfig) -> None: ...

    @abstractmethod
    def enqueue(self, payload: str) -> None:
        """Enqueue one job durably."""

    def enqueue_each(self, payloads: Sequence[str]) -> None:
        """Enqueue the jobs one after the other."""
        for payload in payloads:
            self.enqueue(payload)

    def enqueue_concurrently(self, payloads: Sequence[str]) -> None:
        """Enqueue each job by its own call, concurrently. Called only if `concurrent` is set."""
        raise NotImplementedError

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        """Enqueue many jobs by one call. Called only if `bulk` is set."""
        raise NotImplementedError

    def pause(self, seconds: float) -> None:
        """Sleep between two calls, while background work of the library continues."""
        time.sleep(seconds)

    @abstractmethod
    def close(self) -> None:
        """Close the queue in a producer, as an application would."""

    @abstractmethod
    def work(self, ledger: JobLedger) -> None:
        """Run jobs until SIGTERM; report the start and every run to the ledger."""

    @abstractmethod
    def unfinished(self) -> int:
        """Return the number of jobs not durably settled. Called in a separate process."""
