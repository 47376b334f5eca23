"""An adapter that runs a job again after all jobs have run."""

from __future__ import annotations

import time

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import payload
from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class LateDuplicateAdapter(FileQueueAdapter):
    def run(self, ledger: JobLedger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(19)):  # the last of the tests' twenty
            time.sleep(0.05)  # the watch has seen the end by now, or soon will
            ledger.record_run(payload(0))


adapter = LateDuplicateAdapter
