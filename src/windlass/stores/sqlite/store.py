"""SQLite store: each method of the contract is one call of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

from windlass.core.clock import Clock, Instant, SystemClock
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Checkpoint
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import Event
from windlass.core.job.dependency import Edges
from windlass.core.job.lease import Claim, ExtendResult, Lease, check_lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import Entry, Put, PutResult, check_keys
from windlass.store import (
    AttemptRecords,
    Capabilities,
    EventPage,
    Pruned,
    Retention,
    Store,
)
from windlass.stores.event_tail import tail
from windlass.stores.sqlite import reads, records
from windlass.stores.sqlite.config import Durability, SqliteConfig
from windlass.stores.sqlite.engine import SqliteEngine
from windlass.stores.sqlite.file_watch import FileWatch
from windlass.stores.sqlite.insights import SqliteInsights
from windlass.stores.sqlite.user_transaction import DEFAULT_SECONDS, SqliteTransaction
from windlass.stores.sqlite.writes import apply_requests, claims, enqueue_jobs, maintenance
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


class SqliteStore(Store):
    """Store in one file, for any number of processes on one machine."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        clock: Clock | None = None,
        config: SqliteConfig | None = None,
        _engine: SqliteEngine | None = None,
    ) -> None:
        if _engine is None:
            settings = config or SqliteConfig(
                path=str(path), durability=cast("Durability", durability)
            )
            _engine = SqliteEngine(settings, clock or SystemClock())
        self._shared_engine = _engine
        self._shared_engine.open()
        self._closing: asyncio.Task[None] | None = None
        self._seen = 0
        self._watch: FileWatch | None = None
        self._starting = asyncio.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True,
            fifo=True,
            priority_classes=None,
            atomic_batch=True,
            transactional=True,
            store_clock=True,
            push_wakeups=True,
            shared=True,
        )

    @property
    def insights(self) -> SqliteInsights:
        return SqliteInsights(lambda: self._engine)

    # -- the handle

    @property
    def _engine(self) -> SqliteEngine:
        """The engine. Raises for a closed handle, even if a twin still uses the file."""
        if self._closing is not None:
            raise StoreUnavailableError(f"the store on {self._shared_engine.config.path} is closed")
        return self._shared_engine

    async def migrate(self) -> Sequence[str]:
        await self.ping()  # opening migrates
        applied, self._engine.migrated = self._engine.migrated, []
        return applied

    async def ping(self) -> Instant:
        return await self._engine.write(lambda tx: tx.now())

    def twin(self) -> SqliteStore:
        return SqliteStore(self._engine.config.path, _engine=self._engine)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)  # a cancelled caller does not stop the close

    async def _close(self) -> None:
        async with self._starting:
            if self._watch is not None:
                await self._watch.close()
                self._watch = None
        await asyncio.get_running_loop().run_in_executor(None, self._shared_engine.close)

    def transaction(self, seconds: float = DEFAULT_SECONDS) -> SqliteTransaction:
        """Start a transaction on the store's connection, for rows and jobs of the caller."""
        return SqliteTransaction(self._engine, seconds)

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        if atomic and jobs:
            return await self._engine.write(
                lambda tx: enqueue_jobs.enqueue_atomic(tx, jobs), len(jobs)
            )
        return await self._engine.write_many(enqueue_jobs.enqueue, jobs)

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._seen = self._engine.work.count
        total = sum(limit for _, limit in claim.queues)
        return await self._engine.write(lambda tx: self._claim(tx, claim), total) if total else []

    def _claim(self, tx: WriteTransaction, claim: Claim) -> list[JobRow]:
        if not self._watching():  # a later watch then detects changes since this claim
            self._shared_engine.check_other_processes(tx)
        return claims.claim(tx, claim)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        check_lease(seconds)
        if not leases:
            return []
        return await self._engine.write(lambda tx: claims.extend(tx, leases, seconds), len(leases))

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        return await self._engine.write_many(apply_requests.apply, requests)

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        return await self._engine.write_many(apply_requests.record, attempt_records)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:  # noqa: ARG002 - one wake-up for all queues
        await self._start_watch()
        return await self._engine.work.wait(self._seen, timeout)

    async def _start_watch(self) -> None:
        """Start to watch for writes of other processes, on the first wait."""
        if self._watching() or self._engine.config.exclusive:
            return
        async with self._starting:
            if not self._watching() and self._closing is None:
                if self._watch is not None:
                    await self._watch.close()
                await self.ping()  # creates the file to watch
                self._watch = FileWatch(self._engine.config.wal, self._check_file)
                await self._check_file()  # for writes between the last claim and the watch

    def _watching(self) -> bool:
        return self._watch is not None and not self._watch.inherited

    async def _check_file(self) -> bool:
        return await self._shared_engine.write(self._shared_engine.check_other_processes)

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        now = self._engine.clock.now()
        return await self._engine.read(lambda connection: maintenance.due(connection, now, limit))

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        return await self._engine.write(lambda tx: maintenance.prune(tx, retention, limit), limit)

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        if not ids:
            return []
        return await self._engine.write(lambda tx: maintenance.delete(tx, ids, owner), len(ids))

    # -- reading

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: reads.get(connection, ids, owner))

    async def find(self, query: JobQuery) -> Page:
        return await self._engine.read(lambda connection: reads.find(connection, query))

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        return await self._engine.read(
            lambda connection: reads.events(connection, job_id, after, limit)
        )

    async def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        await self._start_watch()
        async for event in tail(self, self._engine.job_wakeups, job_id, after):
            yield event

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: reads.checkpoints(connection, ids))

    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: reads.edges(connection, ids, limit))

    # -- records

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        return await self._engine.write_many(records.put_records, puts)

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        if not keys:
            return []
        check_keys(kind, keys)
        now = self._engine.clock.now()
        return await self._engine.read(
            lambda connection: records.get_records(connection, kind, keys, now)
        )

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        now = self._engine.clock.now()
        return await self._engine.read(
            lambda connection: records.list_records(connection, kind, after, limit, now)
        )

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._engine.write(lambda tx: records.delete_records(tx, kind, keys))
