"""rq: its SimpleWorker, which runs jobs in its own process; no results kept."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.round_config import RoundConfig

TASK = "benchmarks.peers.redis.rq.noop"
running: dict[str, JobLedger] = {}  # rq finds its functions by their names alone


def noop(payload: str) -> None:
    running["ledger"].record_run(payload)


class Rq(QueueAdapter):
    library = "rq"
    package = "rq"
    server = "redis"
    durability = "keeps nothing of a finished job"
    bulk = "queue.enqueue_many"
    job_share = 0.04

    def __init__(self, config: RoundConfig) -> None:
        self._library = importlib.import_module("rq")
        self._redis = importlib.import_module("redis").Redis.from_url(config.url)
        self._queue = self._library.Queue(connection=self._redis)

    def enqueue(self, payload: str) -> None:
        self._queue.enqueue(TASK, payload, result_ttl=0)

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        prepare: Any = self._library.Queue.prepare_data
        self._queue.enqueue_many([prepare(TASK, (text,), result_ttl=0) for text in payloads])

    def close(self) -> None:
        self._redis.close()

    def work(self, ledger: JobLedger) -> None:
        running["ledger"] = ledger
        worker = self._library.SimpleWorker([self._queue], connection=self._redis)
        ledger.wait_for_start()
        worker.work(logging_level="ERROR")

    def unfinished(self) -> int:
        started = self._library.registry.StartedJobRegistry(queue=self._queue)
        return len(self._queue) + len(started)


adapter = Rq
