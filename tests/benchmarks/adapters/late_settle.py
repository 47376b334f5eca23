"""An adapter that gets half of the jobs and settles them half a second after the last run."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import payload
from tests.benchmarks.adapters.file_queue import FileQueueAdapter

SETTLED = Path("settled")


class LateSettleAdapter(FileQueueAdapter):
    job_share = 0.5

    def run(self, ledger: JobLedger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(19)):  # the last of the tests' twenty
            time.sleep(0.5)
            SETTLED.touch()

    def unfinished(self) -> int:
        return 0 if SETTLED.exists() else 1


adapter = LateSettleAdapter
