"""huey on SQLite: its own consumer with one worker thread and the shortest delays."""

from __future__ import annotations

import importlib

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import POLL_INTERVAL, QueueAdapter
from benchmarks.peers.round_config import RoundConfig


class Huey(QueueAdapter):
    library = "huey"
    package = "huey"
    durability = "WAL, synchronous=FULL (fsync=True); a job is deleted before it runs"
    bulk = None

    def __init__(self, config: RoundConfig) -> None:
        self._ledger: JobLedger | None = None
        huey = importlib.import_module("huey")
        self._huey = huey.SqliteHuey(
            filename=str(config.directory / "huey.db"),
            fsync=True,
            journal_mode="wal",
            results=False,
        )

        @self._huey.task()  # type: ignore[untyped-decorator]
        def noop(payload: str) -> None:
            assert self._ledger is not None
            self._ledger.record_run(payload)

        self._noop = noop

    def enqueue(self, payload: str) -> None:
        self._noop(payload)

    def close(self) -> None:
        self._huey.storage.close()

    def work(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        consumer = self._huey.create_consumer(
            workers=1,
            periodic=False,
            initial_delay=POLL_INTERVAL,
            backoff=1,
            max_delay=POLL_INTERVAL,
        )
        ledger.wait_for_start()
        consumer.run()  # it handles SIGTERM itself

    def unfinished(self) -> int:
        left: int = self._huey.pending_count()
        return left


adapter = Huey
