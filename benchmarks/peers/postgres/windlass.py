"""Windlass on PostgreSQL: the async API, and the real `windlass worker`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks.peers.async_adapter import AsyncQueueAdapter
from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.round_config import RoundConfig
from benchmarks.peers.sqlite.windlass import TASK, UNFINISHED, become_worker
from windlass.app import Windlass


class WindlassPostgres(AsyncQueueAdapter):
    library = "windlass"
    package = "windlass"
    server = "postgresql"
    durability = "leases, fences and log on, rows kept"
    bulk = "app.aenqueue_many of task.new_job(…)"
    concurrent = "100 awaited task.aenqueue(…) concurrently"

    @classmethod
    def missing(cls) -> str | None:
        if find_spec("asyncpg") is None:
            return "not installed: pip install 'windlass[postgres]'"
        return None

    async def open(self, config: RoundConfig) -> None:
        self._app = Windlass(config.url, data=config.directory / "data")

        @self._app.task(name=TASK)
        async def noop(payload: str) -> None: ...

        self._noop = noop
        await self._app.client().store.migrate()

    async def aenqueue(self, payload: str) -> None:
        await self._noop.aenqueue(payload)

    async def aenqueue_bulk(self, payloads: Sequence[str]) -> None:
        await self._app.aenqueue_many([self._noop.new_job(payload) for payload in payloads])

    async def aclose(self) -> None:
        await self._app.aclose()

    def work(self, ledger: JobLedger) -> None:  # noqa: ARG002 - the worker program opens its own
        self.close()
        become_worker()

    async def awork(self, ledger: JobLedger) -> None:
        raise NotImplementedError

    async def aunfinished(self) -> int:
        return len((await self._app.client().store.find(UNFINISHED)).rows)


adapter = WindlassPostgres
