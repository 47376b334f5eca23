"""An adapter without a bulk enqueue."""

from __future__ import annotations

from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class NoBulkAdapter(FileQueueAdapter):
    bulk = None


adapter = NoBulkAdapter
