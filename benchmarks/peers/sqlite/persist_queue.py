"""persist-queue's SQLiteAckQueue: get and ack. Polls, because its wait ignores other processes."""

from __future__ import annotations

import importlib
import time

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import POLL_INTERVAL, QueueAdapter
from benchmarks.peers.round_config import RoundConfig


class PersistQueue(QueueAdapter):
    library = "persistqueue"
    package = "persist-queue"
    durability = "WAL, synchronous=FULL"
    bulk = None

    def __init__(self, config: RoundConfig) -> None:
        self._library = importlib.import_module("persistqueue")
        self._queue = self._library.SQLiteAckQueue(str(config.directory), timeout=30)
        # There is no setting for it, and some builds of SQLite do not default to FULL.
        self._queue._putter.execute("PRAGMA synchronous=FULL")  # noqa: SLF001

    def enqueue(self, payload: str) -> None:
        self._queue.put(payload)

    def close(self) -> None:
        self._queue.close()

    def work(self, ledger: JobLedger) -> None:
        queue, empty = self._queue, self._library.exceptions.Empty
        ledger.wait_for_start()
        while True:
            try:
                item = queue.get(block=False, raw=True)
            except empty:
                time.sleep(POLL_INTERVAL)
                continue
            ledger.record_run(item["data"])
            queue.ack(id=item["pqid"])

    def unfinished(self) -> int:
        acked = int(self._library.sqlackqueue.AckStatus.acked)
        query = "SELECT count(*) FROM ack_queue_default WHERE status < ?"
        left: int = self._queue._getter.execute(query, (acked,)).fetchone()[0]  # noqa: SLF001
        return left


adapter = PersistQueue
