"""Presence of workers: the record that each running worker keeps up to date.

A worker that is running may still have stopped claiming jobs. It is unresponsive if it has a free
slot but has completed no claim for a while. Its running jobs continue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from windlass.core.clock import SECOND, Instant

WORKER = "worker"  # record kind of workers; the key is the worker name
UNRESPONSIVE_POLLS = 20  # poll intervals without a completed claim
UNRESPONSIVE_SECONDS = 2.0  # minimum of that time


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """Record of a running worker. All instants are of the store's clock.

    `queues` maps queue names to slots. `last_claim_at` is when its last claim was completed,
    `seen_at` when this record was written. `free` counts its free slots; it has had one since
    `free_since`. It polls for jobs every `poll_interval` seconds.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int]
    tasks: tuple[str, ...]
    started_at: Instant
    seen_at: Instant
    last_claim_at: Instant | None = None
    running: int = 0
    free: int = 0
    free_since: Instant | None = None
    poll_interval: float = 1.0
    stopping: bool = False

    @property
    def seconds_without_claim(self) -> float:
        """Return for how many seconds it had a free slot and completed no claim, at `seen_at`."""
        if self.free_since is None:
            return 0.0
        since = max(self.free_since, self.last_claim_at or self.started_at)
        return max(0, self.seen_at - since) / SECOND

    @property
    def unresponsive(self) -> bool:
        """Whether it stopped claiming jobs, although it has a free slot and is not stopping."""
        return not self.stopping and self.seconds_without_claim > max(
            UNRESPONSIVE_POLLS * self.poll_interval, UNRESPONSIVE_SECONDS
        )

    @property
    def accepts_jobs(self) -> bool:
        """Whether it fetches new jobs."""
        return not (self.stopping or self.unresponsive)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> LiveWorker:
        """Decode; ignore fields of newer versions."""
        fields = json.loads(data)
        known = {name: fields[name] for name in LiveWorker.__slots__ if name in fields}
        return LiveWorker(**{**known, "tasks": tuple(fields["tasks"])})


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether jobs are being processed; `problems` are the reasons if not, with advice."""

    problems: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.problems


def unresponsive_problems(workers: Iterable[LiveWorker]) -> tuple[str, ...]:
    """Describe the unresponsive workers."""
    return tuple(
        f"worker {worker.name} (pid {worker.pid} on {worker.host}) is unresponsive: "
        f"{worker.free} free slots, "
        f"but no jobs fetched for {worker.seconds_without_claim:.0f} s; restart it"
        for worker in workers
        if worker.unresponsive
    )


def store_problem(error: BaseException, timeout: float) -> str:
    """Describe a store that cannot be reached."""
    reason = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else str(error)
    return f"the store cannot be reached: {reason}"
