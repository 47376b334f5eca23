"""An adapter that runs its third job twice."""

from __future__ import annotations

from tests.bench.adapters.file_queue import FileQueueAdapter

from windlass.bench.adapters.queue_adapter import payload
from windlass.bench.child.job_ledger import JobLedger


class DuplicateRunAdapter(FileQueueAdapter):
    def run(self, ledger: JobLedger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(2)):
            ledger.record_run(text)


adapter = DuplicateRunAdapter
