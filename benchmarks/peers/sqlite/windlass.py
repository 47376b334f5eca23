"""Windlass on SQLite: the sync API, and the real `windlass worker`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.round_config import RoundConfig
from windlass.app import Windlass
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.worker.supervisor import windlass_command

DEFAULT_URL = "sqlite:///jobs.db"
TASK = "bench.noop"
APP = "benchmarks.peers.child.worker_app:app"
UNFINISHED = JobQuery(states=frozenset(State) - {State.SUCCEEDED}, limit=1)


def url_of(config: RoundConfig) -> str:
    return config.url or DEFAULT_URL


def become_worker() -> None:
    """Replace this process by `windlass worker` with the application `child/worker_app`."""
    program = windlass_command()
    os.execv(program[0], [*program, "worker", APP])


class WindlassSqlite(QueueAdapter):
    library = "windlass"
    package = "windlass"
    durability = "WAL, synchronous=FULL; leases, fences and log on, rows kept"
    bulk = "app.enqueue_many of task.new_job(…)"
    concurrent = "100 awaited task.aenqueue(…) concurrently"

    def __init__(self, config: RoundConfig) -> None:
        self._app = Windlass(url_of(config), data=config.directory / "data")

        @self._app.task(name=TASK)
        async def noop(payload: str) -> None: ...

        self._noop = noop

    def enqueue(self, payload: str) -> None:
        self._noop.enqueue(payload)

    def enqueue_concurrently(self, payloads: Sequence[str]) -> None:
        async def enqueue_all() -> None:
            await asyncio.gather(*map(self._noop.aenqueue, payloads))

        self._app.sync.call(enqueue_all())

    def enqueue_bulk(self, payloads: Sequence[str]) -> None:
        self._app.enqueue_many([self._noop.new_job(payload) for payload in payloads])

    def close(self) -> None:
        self._app.close()

    def work(self, ledger: JobLedger) -> None:  # noqa: ARG002 - the worker program opens its own
        become_worker()

    def unfinished(self) -> int:
        async def count_unfinished() -> int:
            return len((await self._app.client().store.find(UNFINISHED)).rows)

        return self._app.sync.call(count_unfinished())


adapter = WindlassSqlite
