"""Batches of outcomes: each one in a call has its own result and does not affect the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.core import size_limits
from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.outcome import Failed, Outcome, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import Status
from windlass.core.errors import TooLargeError
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.state import State
from windlass.store import AttemptRecords, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.settle import (
    every_outcome,
    settle_transition,
    start_many,
)
from windlass.testing.factories import (
    apply_one,
    claim_all,
    enqueue_one,
    get_one,
    make_failure,
    read_events,
    settle_one,
    start_one,
)


class TestSettleBatch:
    # -- many outcomes in one call

    async def test_an_empty_batch_returns_no_results(self, store: Store) -> None:
        assert await store.apply([]) == []

    async def test_each_item_of_a_batch_has_its_own_result_in_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        rows = await start_many(store, 4)
        delayed = await enqueue_one(store, delay=60.0)
        answers = await store.apply(
            [
                settle_transition(rows[0], Succeeded()),
                replace(settle_transition(rows[1], Succeeded()), fence=9),
                replace(settle_transition(rows[1], Succeeded()), job_id=uuid7()),
                promote(delayed),
                settle_transition(rows[2], Succeeded(result=b"x" * (size_limits.MAX_BLOB + 1))),
                settle_transition(rows[3], Released()),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.STALE,
            Status.MISSING,
            Status.CONFLICT,
            Status.REFUSED,
            Status.APPLIED,
        ]
        stored = await store.get([row.id for row in rows])
        assert [row and row.state for row in stored] == [
            State.SUCCEEDED,
            State.RUNNING,
            State.RUNNING,
            State.QUEUED,
        ]

    async def test_an_oversize_result_is_refused_without_affecting_other_items(
        self, store: Store
    ) -> None:
        rows = await start_many(store, 3)
        large = b"x" * size_limits.MAX_BLOB
        answers = await store.apply(
            [
                settle_transition(rows[0], Succeeded(result=large)),
                settle_transition(rows[1], Succeeded(result=large + b"x")),
                settle_transition(rows[2], Succeeded(result=b"small")),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.REFUSED,
            Status.APPLIED,
        ]
        assert isinstance(answers[1].error, TooLargeError)
        first, refused, last = await store.get([row.id for row in rows])
        assert first is not None
        assert last is not None
        assert (first.result, last.result) == (large, b"small")
        assert refused == rows[1], "it still runs and can be settled"
        assert (await settle_one(store, rows[1], Succeeded(result=b"small"))).applied

    @pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
    async def test_an_invalid_delay_is_refused_without_affecting_other_items(
        self, store: Store, delay: float
    ) -> None:
        bad, good = await start_many(store, 2)
        answers = await store.apply(
            [settle_transition(bad, Snoozed(delay=delay)), settle_transition(good, Succeeded())]
        )
        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await get_one(store, bad.id) == bad

    async def test_the_same_settle_twice_in_one_batch_counts_once(self, store: Store) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        transition = settle_transition(row, Failed(failure=make_failure()))
        first, again = await store.apply([transition, transition])
        assert first.applied
        assert again == first
        assert (await get_one(store, row.id)).retry_count == 1

    async def test_of_two_outcomes_of_one_attempt_in_a_batch_the_first_wins(
        self, store: Store
    ) -> None:
        row, other = await start_many(store, 2)
        answers = await store.apply(
            [
                settle_transition(row, Released()),
                settle_transition(other, Succeeded()),
                settle_transition(row, Succeeded()),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.APPLIED,
            Status.STALE,
        ]
        assert (await get_one(store, row.id)).state is State.QUEUED

    async def test_a_large_batch_is_settled_completely(self, store: Store) -> None:
        rows = await start_many(store, 100)
        answers = await store.apply(
            [
                settle_transition(row, Succeeded(result=str(n).encode()) if n % 2 else Released())
                for n, row in enumerate(rows)
            ]
        )
        assert all(answer.applied for answer in answers)
        stored = await store.get([row.id for row in rows])
        assert [row and row.result for row in stored] == [
            str(n).encode() if n % 2 else None for n in range(100)
        ]
        assert len(await claim_all(store)) == 50

    # -- last records

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
