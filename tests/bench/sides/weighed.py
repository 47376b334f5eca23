"""A side whose worker reports its loaded modules."""

from __future__ import annotations

import json
import sys

from tests.bench.sides.files import Files

from windlass.bench.job_ledger import Ledger


class Weighed(Files):
    def work(self, ledger: Ledger) -> None:
        raise RuntimeError(f"loaded {json.dumps(sorted(sys.modules))}")


side = Weighed
