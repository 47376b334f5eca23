"""An adapter that runs its third job twice."""

from __future__ import annotations

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import payload
from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class DuplicateRunAdapter(FileQueueAdapter):
    def run(self, ledger: JobLedger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(2)):
            ledger.record_run(text)


adapter = DuplicateRunAdapter
