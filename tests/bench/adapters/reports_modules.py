"""An adapter whose worker reports its loaded modules."""

from __future__ import annotations

import json
import sys

from tests.bench.adapters.file_queue import FileQueueAdapter

from windlass.bench.child.job_ledger import JobLedger


class ModuleReportingAdapter(FileQueueAdapter):
    def work(self, ledger: JobLedger) -> None:
        raise RuntimeError(f"loaded {json.dumps(sorted(sys.modules))}")


adapter = ModuleReportingAdapter
