"""An adapter whose worker crashes at its first job."""

from __future__ import annotations

from benchmarks.peers.child.job_ledger import JobLedger
from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class CrashingWorkerAdapter(FileQueueAdapter):
    def run(self, ledger: JobLedger, text: str) -> None:
        raise RuntimeError("worker crashed on purpose")


adapter = CrashingWorkerAdapter
