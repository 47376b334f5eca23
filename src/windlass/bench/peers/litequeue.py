"""litequeue: a table with put, pop and done, and a worker loop written here."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence

from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig
from windlass.bench.side import POLL, Side


class LiteQueue(Side):
    library = "litequeue"
    package = "litequeue"
    durability = "WAL, synchronous=FULL (its own default is NORMAL)"
    bulk = "put in one transaction()"

    def __init__(self, config: RoundConfig) -> None:
        litequeue = importlib.import_module("litequeue")
        self._queue = litequeue.LiteQueue(str(config.directory / "litequeue.db"), timeout=30)
        self._queue.conn.execute("PRAGMA synchronous=FULL")

    def put(self, payload: str) -> None:
        self._queue.put(payload)

    def put_many(self, payloads: Sequence[str]) -> None:
        with self._queue.transaction(mode="IMMEDIATE"):
            for payload in payloads:
                self._queue.put(payload)

    def close(self) -> None:
        self._queue.close()

    def work(self, ledger: Ledger) -> None:
        queue = self._queue
        ledger.wait_for_start()
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL)
                continue
            ledger.record_run(message.data)
            queue.done(message.message_id)

    def unfinished(self) -> int:
        query = "SELECT count(*) FROM Queue WHERE status < 2"  # ready, or taken
        left: int = self._queue.conn.execute(query).fetchone()[0]
        return left


side = LiteQueue
