"""An adapter whose worker reports its loaded modules."""

from __future__ import annotations

import json
import sys

from benchmarks.peers.child.job_ledger import JobLedger
from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class ModuleReportingAdapter(FileQueueAdapter):
    def work(self, ledger: JobLedger) -> None:
        raise RuntimeError(f"loaded {json.dumps(sorted(sys.modules))}")


adapter = ModuleReportingAdapter
