"""litequeue: a table with enqueue, pop and done, and a worker loop written here."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import POLL_INTERVAL, QueueAdapter
from benchmarks.peers.round_config import RoundConfig


class LiteQueue(QueueAdapter):
    library = "litequeue"
    package = "litequeue"
    durability = "WAL, synchronous=FULL (its own default is NORMAL)"
    bulk = "put in one transaction()"

    def __init__(self, config: RoundConfig) -> None:
        litequeue = importlib.import_module("litequeue")
        self._queue = litequeue.LiteQueue(str(config.directory / "litequeue.db"), timeout=30)
        self._queue.conn.execute("PRAGMA synchronous=FULL")

    def enqueue(self, payload: str) -> None:
        self._queue.put(payload)

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        with self._queue.transaction(mode="IMMEDIATE"):
            for payload in payloads:
                self._queue.put(payload)

    def close(self) -> None:
        self._queue.close()

    def work(self, ledger: JobLedger) -> None:
        queue = self._queue
        ledger.wait_for_start()
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL_INTERVAL)
                continue
            ledger.record_run(message.data)
            queue.done(message.message_id)

    def unfinished(self) -> int:
        query = "SELECT count(*) FROM Queue WHERE status < 2"  # ready, or taken
        left: int = self._queue.conn.execute(query).fetchone()[0]
        return left


adapter = LiteQueue
