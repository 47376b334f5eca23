"""procrastinate: 20 jobs at a time, as many connections, LISTEN; finished jobs are deleted."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.round_config import RoundConfig

CONCURRENCY = 20


class Procrastinate(PostgresAdapter):
    library = "procrastinate"
    package = "procrastinate"
    durability = "deletes a finished job"
    bulk = "task.batch_defer_async"
    concurrent = "100 awaited task.defer_async at once, pool of 20"
    unfinished_query = "SELECT count(*) FROM procrastinate_jobs"
    job_share = 0.1

    async def open(self, config: RoundConfig) -> None:
        procrastinate = importlib.import_module("procrastinate")
        connector = procrastinate.PsycopgConnector(conninfo=config.url, max_size=CONCURRENCY)
        self._app = procrastinate.App(connector=connector)
        self._ledger: JobLedger | None = None

        @self._app.task(name="noop")  # type: ignore[untyped-decorator]
        async def noop(payload: str) -> None:
            assert self._ledger is not None
            self._ledger.record_run(payload)

        self._noop = noop
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()

    async def aenqueue(self, payload: str) -> None:
        await self._noop.defer_async(payload=payload)

    async def aenqueue_bulk(self, payloads: Sequence[str]) -> None:
        await self._noop.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def aclose(self) -> None:
        await self._app.close_async()

    async def awork(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        ledger.wait_for_start()
        await self._app.run_worker_async(
            concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
        )


adapter = Procrastinate
