"""Celery on Redis: 8 threads, 64 messages prefetched for each, no results."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.round_config import RoundConfig


class Celery(QueueAdapter):
    library = "celery"
    package = "celery[redis]"
    server = "redis"
    durability = "acknowledges a job before it runs, keeps nothing of it"
    bulk = "publishing by one producer, which is kept"
    job_share = 0.1

    def __init__(self, config: RoundConfig) -> None:
        self._redis = importlib.import_module("redis").Redis.from_url(config.url)
        self._app = importlib.import_module("celery").Celery(
            "bench", broker=config.url.replace("unix://", "redis+socket://", 1)
        )
        self._app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=64,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
        )
        self._ledger: JobLedger | None = None

        @self._app.task(name="noop")  # type: ignore[untyped-decorator]
        def noop(payload: str) -> None:
            assert self._ledger is not None
            self._ledger.record_run(payload)

        self._noop = noop

    def enqueue(self, payload: str) -> None:
        self._noop.delay(payload)

    def enqueue_bulk(self, payloads: Any) -> None:
        with self._app.producer_pool.acquire(block=True) as producer:
            for payload in payloads:
                self._noop.apply_async((payload,), producer=producer)

    def close(self) -> None:
        self._app.close()

    def work(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        worker = self._app.Worker(
            pool="threads",
            concurrency=8,
            loglevel="ERROR",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        ledger.wait_for_start()
        worker.start()

    def unfinished(self) -> int:
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))


adapter = Celery
