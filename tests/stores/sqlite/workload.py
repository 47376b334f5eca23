"""Workload of every kind of write, each acknowledgement recorded in a ledger."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tests.stores.sqlite.ack_ledger import Ledger, existing

from windlass.core.decisions.outcome import Failed, Released, Snoozed, Succeeded
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.store import Retention, Store
from windlass.stores.sqlite.rows import INLINE_PAYLOAD
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    cancel_one,
    checkpoint_record,
    claim_all,
    log_record,
    make_failure,
    make_job,
    progress_record,
    settle_one,
    sweep_all,
)


class Workload:
    def __init__(self, store: Store, clock: VirtualClock, ledger: Ledger) -> None:
        self.store = store
        self.clock = clock
        self.ledger = ledger

    async def run(self, rounds: int = 1) -> None:
        for number in range(rounds):
            await self._round(number)

    async def _round(self, number: int) -> None:
        store, ledger = self.store, self.ledger
        single = self._new(queue="single", unique_key=f"key-{number}")
        await self._enqueue(single)
        large = self._new(payload=b"x" * (INLINE_PAYLOAD + 1_000), request_id=f"request-{number}")
        await self._enqueue(large, *(self._new(priority=index % 3) for index in range(8)))
        await asyncio.gather(*(self._enqueue(self._new(queue="media")) for _ in range(4)))
        later = self._new(queue="later", delay=5.0)
        await self._enqueue(later, self._new(queue="later", hold=True))
        claimed = await claim_all(store, limit=5)
        await self._note(claimed)
        await append_records(
            store, claimed[0], progress_record(1, 30, stage="tts"), log_record(2, "half way")
        )
        await append_records(store, claimed[1], checkpoint_record(1, "voice", b"v" * 300))
        await self._note(claimed)
        await store.extend([row.lease for row in claimed], 60.0)
        await self._note(claimed)
        await self._end(claimed)
        await cancel_one(store, single.id, reason="not wanted")
        await ledger.note(store, [single.id])
        self.clock.advance(10)
        await sweep_all(store)
        await ledger.note(store, [later.id])
        await self._drain()

    async def _end(self, claimed: list[JobRow]) -> None:
        first, second, third, fourth, fifth = claimed
        children = [self._new(queue="children"), self._new(queue="children", delay=3600)]
        for child in children:
            self.ledger.enqueued.add(child.id)
        outcome = Succeeded(result=b"r" * 50)
        await settle_one(
            self.store, first, outcome, children=children, records=[log_record(3, "done")]
        )
        await self.ledger.note(self.store, [first.id, *(child.id for child in children)])
        await settle_one(self.store, second, Failed(failure=make_failure(terminal=True)))
        await settle_one(self.store, third, Failed(failure=make_failure(), delay=0.5))
        await self._note([second, third])
        await settle_one(self.store, fourth, Released())
        await settle_one(self.store, fifth, Snoozed(delay=1.0))
        await self._note([fourth, fifth])

    async def _drain(self) -> None:
        """Finish a few jobs, and prune old ones."""
        for row in await claim_all(self.store, "default", "media", limit=3):
            await settle_one(self.store, row, Succeeded())
            await self._note([row])
        self.clock.advance(3600)
        ended = [key for key, row in existing(self.ledger.promises()).items() if row.final]
        self.ledger.request_deletion(ended)
        await self.store.prune(Retention(succeeded=1800, canceled=0, failed=0, log=900), 100)
        await self.ledger.note(self.store, ended)

    def _new(self, **values: object) -> NewJob:
        return make_job(**values)

    async def _enqueue(self, *jobs: NewJob) -> None:
        self.ledger.enqueued |= {job.id for job in jobs}
        answers = await self.store.enqueue(jobs)
        assert all(answer.accepted for answer in answers)
        await self.ledger.note(self.store, [job.id for job in jobs])

    async def _note(self, rows: list[JobRow]) -> None:
        ids: list[UUID] = [row.id for row in rows]
        await self.ledger.note(self.store, ids)
