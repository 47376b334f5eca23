"""Data shared by all handles of one memory store."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from threading import RLock
from uuid import UUID

from windlass.core.admission.permits import Permit
from windlass.core.clock import Clock, Instant
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import LogRow
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.versioned_record import Entry
from windlass.stores.wakeup import JobWakeups, Wakeup


@dataclass
class MemoryData:
    clock: Clock
    lock: RLock = field(default_factory=RLock)
    serial: int = 0
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    logs: dict[UUID, list[LogRow]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[UUID, dict[str, Checkpoint]] = field(default_factory=lambda: defaultdict(dict))
    # By child, then parent: whether the child still waits for the parent.
    edges: dict[UUID, dict[UUID, bool]] = field(default_factory=dict)
    dependents: dict[UUID, list[UUID]] = field(default_factory=lambda: defaultdict(list))
    ended: list[UUID] = field(default_factory=list)  # jobs whose dependents are to be updated
    updating_dependents: bool = False
    # By gate, then by job id, serial and fence.
    permits: dict[str, dict[tuple[UUID, int, int], Permit]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    next_checks: dict[str, Instant | None] = field(default_factory=dict)  # by gate
    gates_to_check: set[str] = field(default_factory=set)  # before the current call returns
    requests: dict[tuple[str, str], UUID] = field(default_factory=dict)
    rollups: dict[tuple[Instant, str, str, State], tuple[int, int, int]] = field(
        default_factory=dict
    )
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    work: Wakeup = field(default_factory=Wakeup)
    job_wakeups: JobWakeups = field(default_factory=JobWakeups)

    def job(self, job_id: UUID, serial: int) -> JobRow | None:
        """Return the job, unless it was deleted and its id was reused by another job."""
        row = self.jobs.get(job_id)
        return row if row is not None and row.serial == serial else None

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial
