"""Runs a job again when every job has run."""

from __future__ import annotations

from tests.bench.sides.files import Files

from windlass.bench.ledger import Ledger
from windlass.bench.side import payload


class Late(Files):
    def run(self, ledger: Ledger, text: str) -> None:
        ledger.ran(text)
        if not ledger.left:
            ledger.settled()
            ledger.ran(payload(0))


side = Late
