"""Runs its third job a second time."""

from __future__ import annotations

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger
from windlass.bench.side import payload


class Twice(Files):
    def run(self, ledger: Ledger, text: str) -> None:
        ledger.ran(text)
        if text.startswith(payload(2)):
            ledger.ran(text)


side = Twice
