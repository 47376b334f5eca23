"""The Store contract on PostgreSQL: each method is one call of the engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from windlass.core.clock import Clock, Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Checkpoint, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import Event
from windlass.core.job.dependency import Edges
from windlass.core.job.lease import Claim, ExtendResult, Lease, check_lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import PAUSED, Entry, Put, PutResult, check_keys
from windlass.store import (
    AttemptRecords,
    Capabilities,
    EventPage,
    Pruned,
    Retention,
    Store,
)
from windlass.stores.borrowed_connection import borrow
from windlass.stores.event_tail import tail
from windlass.stores.postgres import reads, records
from windlass.stores.postgres.admin import migrator
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.engine import PostgresEngine
from windlass.stores.postgres.insights import PostgresInsights
from windlass.stores.postgres.notify import NotifyHub
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.user_transaction import DatabaseId, PostgresEnqueuer, settlement
from windlass.stores.postgres.writes import claims, maintenance
from windlass.stores.postgres.writes.claim_cursor import ClaimCursor
from windlass.stores.postgres.writes.lease_extender import LeaseExtender
from windlass.stores.postgres.writes.writer import PostgresWriter

# Seconds that a claim may take; after that it is retried on another connection.
CLAIM_TIMEOUT = 10.0


class PostgresStore(Store):
    """Store of jobs in a PostgreSQL database, for many processes on many machines."""

    def __init__(
        self,
        config: PostgresConfig | str,
        *,
        clock: Clock | None = None,
        _hub: NotifyHub | None = None,
    ) -> None:
        self._config = PostgresConfig.of(config) if isinstance(config, str) else config
        self._clock = clock
        self._hub = _hub or NotifyHub()
        self._shared_engine = PostgresEngine(self._config, clock)
        self._writer = PostgresWriter(self._shared_engine, self._hub)
        self._leases = LeaseExtender(self._shared_engine)
        self._database_id = DatabaseId(self._config)
        self._cursor = ClaimCursor()
        self._closing: asyncio.Task[None] | None = None
        self._seen = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True,
            fifo=True,
            priority_classes=None,
            atomic_batch=False,  # plain successes of a batch are committed first
            transactional=True,
            store_clock=True,
            push_wakeups=True,
            shared=True,
        )

    @property
    def insights(self) -> PostgresInsights:
        return PostgresInsights(lambda: self._engine)

    # -- handle

    def _check_open(self) -> None:
        """Raise if this handle is closed; a twin may still be open."""
        if self._closing is not None:
            raise StoreUnavailableError(f"the store on {self._config.where} is closed")

    @property
    def _engine(self) -> PostgresEngine:
        self._check_open()
        return self._shared_engine

    @property
    def _open_writer(self) -> PostgresWriter:
        self._check_open()
        return self._writer

    async def migrate(self) -> Sequence[str]:
        where = self._config.where
        return await self._engine.call(lambda c: migrator.migrate(c, where), check_schema=False)

    async def ping(self) -> Instant:
        engine = self._engine
        now: Instant = await engine.call(lambda c: c.fetchval(SQL.now, engine.now()))
        return now

    def twin(self) -> PostgresStore:
        same_process = self._hub.pid == os.getpid()  # not a forked child
        return PostgresStore(
            self._config, clock=self._clock, _hub=self._hub if same_process else None
        )

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)  # it closes even if the caller is canceled

    async def _close(self) -> None:
        await self._leases.close()
        await self._writer.close()
        await self._shared_engine.close()

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        return await self._open_writer.enqueue(jobs, atomic=atomic)

    def within(self, connection: Any) -> PostgresEnqueuer:
        """Return an enqueuer for the transaction of a caller's connection."""
        self._check_open()
        return PostgresEnqueuer(borrow(connection), self._database_id, self._shared_engine.now)

    def settlement(self, transition: Transition) -> tuple[str, str]:
        """Return the statement that settles a success on a task's connection, and its parameter."""
        return settlement(transition, self._shared_engine.now(), self._database_id.get())

    # -- workers

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._seen = self._hub.work.count
        engine = self._engine
        if not any(limit for _, limit in claim.queues):
            return []
        taken = await engine.call(lambda c: self._claim(c, claim))
        self._writer.notify([row.id for row in taken])
        if self._cursor.head_check_due():
            engine.spawn(self._check_head())
        return taken

    async def _check_head(self) -> None:
        """Check the head in the background; if it fails, the next one runs later."""
        engine = self._shared_engine
        if await engine.run(lambda c: self._cursor.check_head(c, engine.now())):
            self._hub.work.notify()

    async def _claim(self, connection: Connection, claim: Claim) -> list[JobRow]:
        await self._database_id.load(connection)  # for settles in a task's own transaction
        timeout = min(self._config.timeout, CLAIM_TIMEOUT)
        return await claims.claim(
            connection, claim, self._shared_engine.now(), self._cursor, timeout
        )

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        check_lease(seconds)
        if not leases:
            return []
        self._check_open()
        return await self._leases.extend(leases, seconds)

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        return await self._open_writer.apply(requests)

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        return await self._open_writer.record(attempt_records)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        if await self._open_writer.listen(timeout):  # jobs may have arrived since the last claim
            engine = self._engine
            if await engine.call(lambda c: claims.claimable(c, queues, engine.now())):
                return True
        return await self._hub.work.wait(self._seen, timeout)

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        engine = self._engine
        return await engine.call(lambda c: maintenance.due(c, limit, engine.now()))

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        engine = self._engine
        return await engine.call(
            lambda c: maintenance.prune(c, retention, limit, engine.now()), in_transaction=True
        )

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        if not ids:
            return []
        results, batch = await self._engine.call(
            lambda c: maintenance.delete(c, ids, owner), in_transaction=True
        )
        self._writer.notify(batch.touched)
        return results

    # -- reads

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.get(c, ids, owner))

    async def find(self, query: JobQuery) -> Page:
        return await self._engine.call(lambda c: reads.find(c, query))

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        return await self._engine.call(lambda c: reads.events(c, job_id, after, limit))

    async def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        await self._open_writer.listen(self._config.connect_timeout)
        async for event in tail(self, self._hub.job_wakeups, job_id, after):
            yield event

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.checkpoints(c, ids))

    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.edges(c, ids, limit))

    # -- records

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        if not puts:
            return []
        engine = self._engine
        return await engine.call(
            lambda c: records.put_records(c, puts, engine.now()), in_transaction=True
        )

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        if not keys:
            return []
        check_keys(kind, keys)
        engine = self._engine
        return await engine.call(lambda c: records.get_records(c, kind, keys, engine.now()))

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        engine = self._engine
        listed = partial(records.list_records, kind=kind, after=after, limit=limit)
        return await engine.call(lambda c: listed(c, now=engine.now()))

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._engine.call(
                lambda c: records.delete_records(c, kind, keys), in_transaction=True
            )
            if kind == PAUSED:
                self._writer.notify(work=True)
