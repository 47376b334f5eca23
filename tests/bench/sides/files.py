"""A queue in a text file, for tests of the bench."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import POLL, Side


class Files(Side):
    library = "json"
    package = "none"
    durability = "none"
    bulk: ClassVar[str | None] = "one write"

    def __init__(self, place: RoundConfig) -> None:
        self._file = place.directory / "queue.txt"
        self._file.touch()

    def put(self, payload: str) -> None:
        self.put_many([payload])

    def put_many(self, payloads: Sequence[str]) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{payload}\n" for payload in payloads)

    def close(self) -> None: ...

    def work(self, ledger: Ledger) -> None:
        ledger.wait_for_start()
        with self._file.open() as file:
            while True:
                payload = file.readline()
                if not payload:
                    time.sleep(POLL)
                    continue
                self.run(ledger, payload)

    def run(self, ledger: Ledger, payload: str) -> None:
        ledger.record_run(payload)

    def unfinished(self) -> int:
        return 0


side = Files
