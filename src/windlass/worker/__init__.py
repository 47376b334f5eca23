"""Running jobs: one loop per file, each opening with what it waits for and what it guarantees."""

from __future__ import annotations

from windlass.worker.batch.task import Batch, Item
from windlass.worker.config import WorkerConfig
from windlass.worker.context import Context
from windlass.worker.hooks import Kit
from windlass.worker.worker import Worker

__all__ = ["Batch", "Context", "Item", "Kit", "Worker", "WorkerConfig"]
