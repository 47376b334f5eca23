"""An adapter whose worker crashes at its first job."""

from __future__ import annotations

from tests.bench.adapters.file_queue import FileQueueAdapter

from windlass.bench.child.job_ledger import JobLedger


class CrashingWorkerAdapter(FileQueueAdapter):
    def run(self, ledger: JobLedger, text: str) -> None:
        raise RuntimeError("worker crashed on purpose")


adapter = CrashingWorkerAdapter
