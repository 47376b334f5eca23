"""A settle stores the last records of its attempt, once, or is refused with them."""

from __future__ import annotations

from dataclasses import replace

from windlass.core import size_limits
from windlass.core.decisions.outcome import Outcome, Succeeded
from windlass.core.decisions.transition import Status
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.store import AttemptRecords, Store
from windlass.testing.conformance.attempts.settle import (
    every_outcome,
    settle_transition,
)
from windlass.testing.factories import (
    apply_one,
    get_one,
    read_events,
    settle_one,
    start_one,
)


class TestSettleRecords:
    @every_outcome
    async def test_a_settle_stores_the_last_records_of_its_attempt(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        records = [
            Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0, stage="parse"),
            Record(n=2, type=EventType.LOG, body=b'"nearly"'),
            Record(n=3, type=EventType.STEP_STATUS, step="parse", checkpoint=b"7"),
        ]
        transition = settle_transition(row, outcome, records=records)
        await apply_one(store, transition)
        await apply_one(store, transition)
        events = [e for e in await read_events(store, row.id) if e.type is not EventType.JOB_STATUS]
        assert [e.type for e in events[:3]] == [record.type for record in records]
        assert events[1].body == b'"nearly"'
        assert len([e for e in events if e.type is EventType.LOG]) == 1
        [steps] = await store.checkpoints([row.id])
        assert steps["parse"].value == b"7"
        after_it = await get_one(store, row.id)
        assert after_it.stage == "parse"
        assert after_it.percent == (100 if isinstance(outcome, Succeeded) else 40)

    async def test_a_settle_does_not_store_a_record_twice(self, store: Store) -> None:
        row = await start_one(store)
        records = [Record(n=n, type=EventType.LOG, body=str(n).encode()) for n in (1, 2, 3)]
        await store.record([AttemptRecords(row.lease, records[:2])])
        await settle_one(store, row, Succeeded(), records=records)
        logs = [e.body for e in await read_events(store, row.id) if e.type is EventType.LOG]
        assert logs == [b"1", b"2", b"3"]

    async def test_a_stale_settle_stores_no_records(self, store: Store) -> None:
        row = await start_one(store)
        before = await read_events(store, row.id)
        records = [Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0)]
        transition = settle_transition(row, Succeeded(), records=records)
        await apply_one(store, replace(transition, token=uuid7()))
        assert await read_events(store, row.id) == before

    async def test_an_oversize_last_record_refuses_the_settle(self, store: Store) -> None:
        row = await start_one(store)
        records = [Record(n=1, type=EventType.LOG, body=b"x" * (size_limits.MAX_EVENT + 1))]
        answer = await settle_one(store, row, Succeeded(), records=records)
        assert answer.status is Status.REFUSED
        assert await get_one(store, row.id) == row
