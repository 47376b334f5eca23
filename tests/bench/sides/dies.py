"""A side whose worker crashes at its first job."""

from __future__ import annotations

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger


class Dies(Files):
    def run(self, ledger: Ledger, text: str) -> None:
        raise RuntimeError("the disk is made of cheese")


side = Dies
