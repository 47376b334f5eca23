"""A side that gets half of the jobs and settles them half a second after the last run."""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger
from windlass.bench.side import payload

SETTLED = Path("settled")


class Tardy(Files):
    share = 0.5

    def run(self, ledger: Ledger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(19)):  # the last of the tests' twenty
            time.sleep(0.5)
            SETTLED.touch()

    def unfinished(self) -> int:
        return 0 if SETTLED.exists() else 1


side = Tardy
