"""Schemas of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from windlass.core.worker_presence import LiveWorker
from windlass.schemas.base import JsonModel, shared_fields


class WorkerView(JsonModel):
    """A running worker; `unresponsive` if it has free slots but has not claimed for a while."""

    name: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int]
    tasks: Sequence[str]
    started_at: datetime
    seen_at: datetime
    last_claim_at: datetime | None
    running: int
    free: int
    stopping: bool
    unresponsive: bool

    @staticmethod
    def of(worker: LiveWorker) -> WorkerView:
        return WorkerView(**shared_fields(WorkerView, worker))


class Workers(JsonModel):
    """Running workers by name."""

    workers: Sequence[WorkerView]

    @staticmethod
    def of(workers: Sequence[LiveWorker]) -> Workers:
        return Workers(workers=[WorkerView.of(worker) for worker in workers])
