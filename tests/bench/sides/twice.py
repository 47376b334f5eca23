"""A side that runs its third job twice."""

from __future__ import annotations

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger
from windlass.bench.side import payload


class Twice(Files):
    def run(self, ledger: Ledger, text: str) -> None:
        ledger.record_run(text)
        if text.startswith(payload(2)):
            ledger.record_run(text)


side = Twice
