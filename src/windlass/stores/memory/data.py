"""What all handles of one memory store share."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from threading import RLock
from uuid import UUID

from windlass.core.admission.gates import Pass
from windlass.core.clock import Clock, Instant
from windlass.core.decisions.transition import (
    Checkpoint,
)
from windlass.core.event import LogRow
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.records import Entry
from windlass.stores.wakeup import Bulletin, Signal


@dataclass
class Data:
    clock: Clock
    lock: RLock = field(default_factory=RLock)
    serial: int = 0
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    logs: dict[UUID, list[LogRow]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[UUID, dict[str, Checkpoint]] = field(default_factory=lambda: defaultdict(dict))
    edges: dict[UUID, dict[UUID, bool]] = field(default_factory=dict)  # who still waits for whom
    dependents: dict[UUID, list[UUID]] = field(default_factory=lambda: defaultdict(list))
    ended: list[UUID] = field(default_factory=list)  # jobs whose dependents are to be told
    telling: bool = False
    passes: dict[str, dict[tuple[UUID, int, int], Pass]] = field(
        default_factory=lambda: defaultdict(dict)
    )  # by gate, of a job, by its id and serial, under a fence
    looks: dict[str, Instant | None] = field(default_factory=dict)  # when to look at which gate
    knocks: set[str] = field(default_factory=set)  # gates to be looked at before the call returns
    requests: dict[tuple[str, str], UUID] = field(default_factory=dict)
    rollups: dict[tuple[Instant, str, str, State], tuple[int, int, int]] = field(
        default_factory=dict
    )
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    work: Signal = field(default_factory=Signal)
    news: Bulletin = field(default_factory=Bulletin)

    def job(self, job_id: UUID, serial: int) -> JobRow | None:
        """That one, and none that was put in under its id when it was gone."""
        row = self.jobs.get(job_id)
        return row if row is not None and row.serial == serial else None

    def next_serial(self) -> int:
        self.serial += 1
        return self.serial
