"""Worker: claims and runs jobs. Each background loop has its own file in `loops/`."""

from __future__ import annotations

from windlass.worker.app_parts import AppParts
from windlass.worker.batch.batch import Batch, Item
from windlass.worker.config import WorkerConfig
from windlass.worker.context import Context
from windlass.worker.worker import Worker

__all__ = ["AppParts", "Batch", "Context", "Item", "Worker", "WorkerConfig"]
