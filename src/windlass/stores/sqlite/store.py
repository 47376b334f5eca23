"""The Store contract on one SQLite file: each verb is one call of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Clock, Instant, SystemClock
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Answer, CancelRequest, Checkpoint, Signal, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import Event
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.core.job.failure import Failures
from windlass.core.job.lease import Claim, Extended, Lease, check_lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.query.job_query import Count, Page, Query
from windlass.core.records import PAUSED, Entry, Put, PutAnswer, check_keys
from windlass.store import (
    Capabilities,
    EventPage,
    Pruned,
    QueueStats,
    Retention,
    Rollup,
    Saying,
    Store,
)
from windlass.stores.sqlite import reads
from windlass.stores.sqlite.connection import Durability, SqliteConfig
from windlass.stores.sqlite.engine import Engine
from windlass.stores.sqlite.file_watch import Watch
from windlass.stores.sqlite.user_transaction import DEFAULT_SECONDS, Session
from windlass.stores.sqlite.writes import enqueue_jobs, flows, gates, jobs
from windlass.stores.sqlite.writes.transaction import Tx
from windlass.stores.tail import tail


class SqliteStore(Store):
    """Jobs in one file, for any number of processes on one machine."""

    def __init__(
        self,
        path: str | Path,
        *,
        durability: str = "full",
        clock: Clock | None = None,
        config: SqliteConfig | None = None,
        _engine: Engine | None = None,
    ) -> None:
        if _engine is None:
            settings = config or SqliteConfig(
                path=str(path), durability=cast("Durability", durability)
            )
            _engine = Engine(settings, clock or SystemClock())
        self._shared = _engine
        self._shared.open()
        self._closing: asyncio.Task[None] | None = None
        self._seen = 0
        self._watch: Watch | None = None
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

    # -- the handle

    @property
    def _engine(self) -> Engine:
        """Refused to a closed handle, though a twin may go on with the file."""
        if self._closing is not None:
            raise StoreUnavailableError(f"the store on {self._shared.config.path} is closed")
        return self._shared

    async def migrate(self) -> Sequence[str]:
        await self.ping()  # opening migrates
        done, self._engine.migrated = self._engine.migrated, []
        return done

    async def ping(self) -> Instant:
        return await self._engine.write(lambda tx: tx.now())

    def twin(self) -> SqliteStore:
        return SqliteStore(self._engine.config.path, _engine=self._engine)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)  # whoever gives up waiting, it is closed all the same

    async def _close(self) -> None:
        async with self._starting:
            if self._watch is not None:
                await self._watch.close()
                self._watch = None
        await asyncio.get_running_loop().run_in_executor(None, self._shared.close)

    def transaction(self, seconds: float = DEFAULT_SECONDS) -> Session:
        """A transaction on the store's own connection, for the caller's rows and jobs together."""
        return Session(self._engine, seconds)

    # -- putting in

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        if together and jobs:
            return await self._engine.write(lambda tx: enqueue_jobs.together(tx, jobs), len(jobs))
        return await self._engine.write_many(enqueue_jobs.enqueue, jobs)

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._seen = self._engine.work.count
        most = sum(limit for _, limit in claim.queues)
        return await self._engine.write(lambda tx: self._claim(tx, claim), most) if most else []

    def _claim(self, tx: Tx, claim: Claim) -> list[JobRow]:
        if not self._watching():  # whoever will watch can then tell what came since
            self._shared.look_elsewhere(tx)
        return jobs.claim(tx, claim)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        check_lease(seconds)
        if not leases:
            return []
        return await self._engine.write(lambda tx: jobs.extend(tx, leases, seconds), len(leases))

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        return await self._engine.write_many(jobs.apply, transitions)

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        return await self._engine.write_many(jobs.record, sayings)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:  # noqa: ARG002 - one hint
        await self._listen()
        return await self._engine.work.wait(self._seen, timeout)

    async def _listen(self) -> None:
        """Start to notice what other processes write, the first time somebody waits."""
        if self._watching() or self._engine.config.exclusive:
            return
        async with self._starting:
            if not self._watching() and self._closing is None:
                if self._watch is not None:
                    await self._watch.close()
                await self.ping()  # the file to watch exists from here on
                self._watch = Watch(self._engine.config.wal, self._look)
                await self._look()  # at what came between the last claim and the watch

    def _watching(self) -> bool:
        return self._watch is not None and not self._watch.alien

    async def _look(self) -> bool:
        return await self._shared.write(self._shared.look_elsewhere)

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        now = self._engine.clock.now()
        return await self._engine.read(lambda connection: reads.due(connection, now, limit))

    async def expired(self, limit: int) -> list[JobRow]:
        now = self._engine.clock.now()
        return await self._engine.read(lambda connection: reads.expired(connection, now, limit))

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        return await self._engine.write(lambda tx: reads.prune(tx, retention, limit), limit)

    # -- operators

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        return await self._engine.write_many(jobs.cancel, requests)

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        return await self._engine.write_many(jobs.signal, signals)

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[Answer]:
        if not ids:
            return []
        return await self._engine.write(lambda tx: jobs.delete(tx, ids, owner), len(ids))

    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        if paused:
            await self.put_records([Put(kind=PAUSED, key=queue, value=b"") for queue in queues])
            return
        await self.delete_records(PAUSED, queues)
        self._engine.work.notify()

    # -- reading

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: reads.get(connection, ids, owner))

    async def find(self, query: Query) -> Page:
        return await self._engine.read(lambda connection: reads.find(connection, query))

    async def count(self, query: Query) -> Count:
        return await self._engine.read(lambda connection: reads.count(connection, query))

    async def stats(self) -> Mapping[str, QueueStats]:
        now = self._engine.clock.now()
        return await self._engine.read(lambda connection: reads.stats(connection, now))

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        return await self._engine.read(
            lambda connection: reads.failures(connection, since, limit, (owner, team))
        )

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        if not names:
            return []
        return await self._engine.read(lambda connection: gates.stats(connection, names))

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        return await self._engine.read(lambda connection: reads.rollups(connection, since, until))

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        return await self._engine.read(
            lambda connection: reads.events(connection, job_id, after, limit)
        )

    async def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        await self._listen()
        async for event in tail(self, self._engine.news, job_id, after):
            yield event

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        return await self._engine.read(lambda connection: reads.attempts(connection, job_id))

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: reads.checkpoints(connection, ids))

    # -- jobs that depend on jobs

    async def edges(self, ids: Sequence[UUID], most: int | None = None) -> list[Edges]:
        if not ids:
            return []
        return await self._engine.read(lambda connection: flows.edges(connection, ids, most))

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        if not ids:
            return []
        return await self._engine.read(
            lambda connection: flows.flows(connection, ids, (owner, team))
        )

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        return await self._engine.read(
            lambda connection: flows.newest(connection, before, limit, (owner, team))
        )

    # -- small data

    async def put_records(self, puts: Sequence[Put]) -> list[PutAnswer]:
        return await self._engine.write_many(reads.put_records, puts)

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        if not keys:
            return []
        check_keys(kind, keys)
        now = self._engine.clock.now()
        return await self._engine.read(
            lambda connection: reads.get_records(connection, kind, keys, now)
        )

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        now = self._engine.clock.now()
        return await self._engine.read(
            lambda connection: reads.list_records(connection, kind, after, limit, now)
        )

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._engine.write(lambda tx: reads.delete_records(tx, kind, keys))
