"""dramatiq on Redis: one process, one thread, 500 messages prefetched."""

from __future__ import annotations

import importlib
import os
import signal

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.round_config import RoundConfig

PREFETCH = "500"


class Dramatiq(QueueAdapter):
    library = "dramatiq"
    package = "dramatiq[redis]"
    server = "redis"
    durability = "keeps nothing of a finished job"
    bulk = None
    job_share = 0.2

    def __init__(self, config: RoundConfig) -> None:
        os.environ["dramatiq_queue_prefetch"] = PREFETCH  # noqa: SIM112 - its name for it
        self._library = importlib.import_module("dramatiq")
        brokers = importlib.import_module("dramatiq.brokers.redis")
        self._broker = brokers.RedisBroker(url=config.url)
        self._library.set_broker(self._broker)
        self._ledger: JobLedger | None = None

        @self._library.actor  # type: ignore[untyped-decorator]
        def noop(payload: str) -> None:
            assert self._ledger is not None
            self._ledger.record_run(payload)

        self._noop = noop

    def enqueue(self, payload: str) -> None:
        self._noop.send(payload)

    def close(self) -> None:
        self._broker.close()

    def work(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        worker = self._library.Worker(self._broker, worker_threads=1)
        ledger.wait_for_start()
        worker.start()
        signal.pause()

    def unfinished(self) -> int:
        """Those that wait and those that are handed out are both in the hash of messages."""
        count: int = self._broker.client.hlen("dramatiq:default.msgs")
        return count


adapter = Dramatiq
