"""A queue in a text file, for tests of the benchmark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import POLL_INTERVAL, QueueAdapter
from benchmarks.peers.round_config import RoundConfig


class FileQueueAdapter(QueueAdapter):
    library = "json"
    package = "none"
    durability = "none"
    bulk: ClassVar[str | None] = "one write"

    def __init__(self, place: RoundConfig) -> None:
        self._file = place.directory / "queue.txt"
        self._file.touch()

    def enqueue(self, payload: str) -> None:
        self.enqueue_bulk([payload])

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{payload}\n" for payload in payloads)

    def close(self) -> None: ...

    def work(self, ledger: JobLedger) -> None:
        ledger.wait_for_start()
        with self._file.open() as file:
            while True:
                payload = file.readline()
                if not payload:
                    time.sleep(POLL_INTERVAL)
                    continue
                self.run(ledger, payload)

    def run(self, ledger: JobLedger, payload: str) -> None:
        ledger.record_run(payload)

    def unfinished(self) -> int:
        return 0


adapter = FileQueueAdapter
