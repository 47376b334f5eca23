"""A side that runs a job again after all jobs have run."""

from __future__ import annotations

import time

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger
from windlass.bench.side import payload


class Late(Files):
    def run(self, ledger: Ledger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(19)):  # the last of the tests' twenty
            time.sleep(0.05)  # the watch has seen the end by now, or soon will
            ledger.record_run(payload(0))


side = Late
