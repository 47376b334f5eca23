"""The Store contract on a PostgreSQL server: each verb is one call of the engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Clock, Instant
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
from windlass.stores.borrowed_connection import borrow
from windlass.stores.postgres import maintenance, reads
from windlass.stores.postgres.connection import Connection, PostgresConfig
from windlass.stores.postgres.engine import Engine
from windlass.stores.postgres.notify import Hub
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.schema import migrator
from windlass.stores.postgres.user_transaction import Place, Within, settlement
from windlass.stores.postgres.writes import jobs
from windlass.stores.postgres.writes.claim_cursor import Line
from windlass.stores.postgres.writes.handle import Writes
from windlass.stores.postgres.writes.leases import Leases
from windlass.stores.tail import tail

CLAIM = 10.0  # seconds that a claim may take: on a dead connection it is soon made on another


class PostgresStore(Store):
    """Jobs in one database, for any number of processes on any number of machines."""

    def __init__(
        self,
        config: PostgresConfig | str,
        *,
        clock: Clock | None = None,
        _hub: Hub | None = None,
    ) -> None:
        self._config = PostgresConfig.of(config) if isinstance(config, str) else config
        self._clock = clock
        self._hub = _hub or Hub()
        self._shared = Engine(self._config, clock)
        self._writes = Writes(self._shared, self._hub)
        self._leases = Leases(self._shared)
        self._place = Place(self._config)
        self._line = Line()
        self._closing: asyncio.Task[None] | None = None
        self._seen = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=True,
            fifo=True,
            priority_classes=None,
            atomic_batch=False,  # of a batch of settles, the successes are written first
            transactional=True,
            store_clock=True,
            push_wakeups=True,
            shared=True,
        )

    # -- the handle

    def _check_open(self) -> None:
        """Refuse a closed handle, though a twin may go on."""
        if self._closing is not None:
            raise StoreUnavailableError(f"the store on {self._config.where} is closed")

    @property
    def _engine(self) -> Engine:
        self._check_open()
        return self._shared

    @property
    def _writing(self) -> Writes:
        self._check_open()
        return self._writes

    async def migrate(self) -> Sequence[str]:
        where = self._config.where
        return await self._engine.call(lambda c: migrator.migrate(c, where), checked=False)

    async def ping(self) -> Instant:
        engine = self._engine
        found: Instant = await engine.call(lambda c: c.fetchval(SQL.now, engine.now()))
        return found

    def twin(self) -> PostgresStore:
        ours = self._hub.pid == os.getpid()  # else this is a child of the process that made it
        return PostgresStore(self._config, clock=self._clock, _hub=self._hub if ours else None)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)  # whoever gives up waiting, it is closed all the same

    async def _close(self) -> None:
        await self._leases.close()
        await self._writes.close()
        await self._shared.close()

    # -- putting in

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        return await self._writing.enqueue(jobs, together=together)

    def within(self, connection: Any) -> Within:
        """For jobs that become real with the transaction of a connection of the caller's."""
        self._check_open()
        return Within(borrow(connection), self._place, self._shared.now)

    def settlement(self, wish: Transition) -> tuple[str, str]:
        """A success as a statement for the task's own connection, and its text."""
        return settlement(wish, self._shared.now(), self._place.get())

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._seen = self._hub.work.count
        engine = self._engine
        if not any(limit for _, limit in claim.queues):
            return []
        taken = await engine.call(lambda c: self._claim(c, claim))
        self._writes.tell([row.id for row in taken])
        if self._line.wants_a_look():
            engine.begin(self._look_at_the_line())
        return taken

    async def _look_at_the_line(self) -> None:
        """Beside the claims; if it fails, there will be another."""
        engine = self._shared
        if await engine.run(lambda c: self._line.look(c, engine.now())):
            self._hub.work.notify()

    async def _claim(self, connection: Connection, claim: Claim) -> list[JobRow]:
        await self._place.learn(connection)  # for whoever settles in a transaction of the task's
        timeout = min(self._config.timeout, CLAIM)
        return await jobs.claim(connection, claim, self._shared.now(), self._line, timeout)

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        check_lease(seconds)
        if not leases:
            return []
        self._check_open()
        return await self._leases.extend(leases, seconds)

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        return await self._writing.apply(transitions)

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        return await self._writing.record(sayings)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        if await self._writing.listen(timeout):  # what came between the last claim and this?
            engine = self._engine
            if await engine.call(lambda c: jobs.claimable(c, queues, engine.now())):
                return True
        return await self._hub.work.wait(self._seen, timeout)

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        engine = self._engine
        return await engine.call(lambda c: maintenance.due(c, limit, engine.now()))

    async def expired(self, limit: int) -> list[JobRow]:
        engine = self._engine
        return await engine.call(lambda c: maintenance.expired(c, limit, engine.now()))

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        engine = self._engine
        return await engine.call(
            lambda c: maintenance.prune(c, retention, limit, engine.now()), whole=True
        )

    # -- operators

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        return await self._writing.cancel(requests)

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        return await self._writing.signal(signals)

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[Answer]:
        if not ids:
            return []
        answers, batch = await self._engine.call(lambda c: jobs.delete(c, ids, owner), whole=True)
        self._writes.tell(batch.touched)
        return answers

    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        if paused:
            await self.put_records([Put(kind=PAUSED, key=queue, value=b"") for queue in queues])
            return
        await self.delete_records(PAUSED, queues)
        self._writes.tell(work=True)

    # -- reading

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.get(c, ids, owner))

    async def find(self, query: Query) -> Page:
        return await self._engine.call(lambda c: reads.find(c, query))

    async def count(self, query: Query) -> Count:
        return await self._engine.call(lambda c: reads.count(c, query))

    async def stats(self) -> Mapping[str, QueueStats]:
        engine = self._engine
        return await engine.call(lambda c: reads.stats(c, engine.now()))

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        return await self._engine.call(lambda c: reads.failures(c, since, limit, (owner, team)))

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        if not names:
            return []
        return await self._engine.call(lambda c: reads.gates(c, names))

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        return await self._engine.call(lambda c: reads.rollups(c, since, until))

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        return await self._engine.call(lambda c: reads.events(c, job_id, after, limit))

    async def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        await self._writing.listen(self._config.connect_timeout)
        async for event in tail(self, self._hub.news, job_id, after):
            yield event

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        return await self._engine.call(lambda c: reads.attempts(c, job_id))

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.checkpoints(c, ids))

    # -- jobs that depend on jobs

    async def edges(self, ids: Sequence[UUID], most: int | None = None) -> list[Edges]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.edges(c, ids, most))

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        if not ids:
            return []
        return await self._engine.call(lambda c: reads.flows(c, ids, (owner, team)))

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        return await self._engine.call(
            lambda c: reads.newest_flows(c, before, limit, (owner, team))
        )

    # -- small data

    async def put_records(self, puts: Sequence[Put]) -> list[PutAnswer]:
        if not puts:
            return []
        engine = self._engine
        return await engine.call(lambda c: reads.put_records(c, puts, engine.now()), whole=True)

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        if not keys:
            return []
        check_keys(kind, keys)
        engine = self._engine
        return await engine.call(lambda c: reads.get_records(c, kind, keys, engine.now()))

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        engine = self._engine
        listed = partial(reads.list_records, kind=kind, after=after, limit=limit)
        return await engine.call(lambda c: listed(c, now=engine.now()))

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._engine.call(lambda c: reads.delete_records(c, kind, keys), whole=True)
