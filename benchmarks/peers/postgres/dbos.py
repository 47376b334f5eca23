"""DBOS: workflows on a queue, 100 at a time in a process, polled every 10 ms."""

from __future__ import annotations

import importlib
import signal
from typing import Any

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.round_config import RoundConfig

QUEUE = "bench"
WORKFLOW = "noop"
TARGET = {"queue_name": QUEUE, "workflow_name": WORKFLOW}


class Dbos(PostgresAdapter):
    library = "dbos"
    package = "dbos"
    durability = "keeps a finished workflow and its result"
    bulk = None
    concurrent = "100 awaited client.enqueue_async at once, which is in threads"
    unfinished_query = (
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    )
    job_share = 0.05

    async def open(self, config: RoundConfig) -> None:
        self._dbos = importlib.import_module("dbos")
        self._system = config.url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._dbos.run_dbos_database_migrations(self._system)
        self._client: Any = self._dbos.DBOSClient(system_database_url=self._system)

    def enqueue(self, payload: str) -> None:
        self._client.enqueue(TARGET, payload)

    async def aenqueue(self, payload: str) -> None:
        await self._client.enqueue_async(TARGET, payload)

    async def aclose(self) -> None:
        self._client.destroy()

    def work(self, ledger: JobLedger) -> None:
        """Run jobs; DBOS has its own threads and event loops."""
        dbos = self._dbos.DBOS
        dbos(config={"name": QUEUE, "system_database_url": self._system, "log_level": "ERROR"})

        @dbos.workflow(name=WORKFLOW)  # type: ignore[untyped-decorator]
        def noop(payload: str) -> None:
            ledger.record_run(payload)

        ledger.wait_for_start()
        dbos.launch()
        dbos.register_queue(QUEUE, worker_concurrency=100, polling_interval_sec=0.01)
        signal.pause()

    async def awork(self, ledger: JobLedger) -> None:
        raise NotImplementedError


adapter = Dbos
