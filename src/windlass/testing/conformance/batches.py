"""Many settles in one call: each is answered for itself, and none fails its neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.core import sizes
from windlass.core.decisions.outcome import (
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    promote,
)
from windlass.core.decisions.retry import Fixed, Policy
from windlass.core.decisions.transition import Status
from windlass.core.errors import TooLargeError
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import Saying, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.settle import ending, every_outcome, start_many
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


class TestBatches:
    # -- many at a time

    async def test_nothing_to_apply_is_nothing_answered(self, store: Store) -> None:
        assert await store.apply([]) == []

    async def test_each_of_a_batch_is_answered_for_itself_and_in_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        rows = await start_many(store, 4)
        delayed = await enqueue_one(store, delay=60.0)
        answers = await store.apply(
            [
                ending(rows[0], Succeeded()),
                replace(ending(rows[1], Succeeded()), fence=9),
                replace(ending(rows[1], Succeeded()), job_id=uuid7()),
                promote(delayed),
                ending(rows[2], Succeeded(result=b"x" * (sizes.MAX_BLOB + 1))),
                ending(rows[3], Released()),
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

    async def test_an_oversize_result_is_refused_and_leaves_its_neighbours_alone(
        self, store: Store
    ) -> None:
        rows = await start_many(store, 3)
        large = b"x" * sizes.MAX_BLOB
        answers = await store.apply(
            [
                ending(rows[0], Succeeded(result=large)),
                ending(rows[1], Succeeded(result=large + b"x")),
                ending(rows[2], Succeeded(result=b"small")),
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
        assert refused == rows[1], "it runs on, and may still be settled"
        assert (await settle_one(store, rows[1], Succeeded(result=b"small"))).applied

    @pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
    async def test_a_delay_that_is_none_is_refused_and_leaves_its_neighbours_alone(
        self, store: Store, delay: float
    ) -> None:
        bad, good = await start_many(store, 2)
        answers = await store.apply([ending(bad, Snoozed(delay=delay)), ending(good, Succeeded())])
        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await get_one(store, bad.id) == bad

    async def test_the_same_settle_twice_in_one_batch_counts_once(self, store: Store) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        wish = ending(row, Failed(failure=make_failure()))
        first, again = await store.apply([wish, wish])
        assert first.applied
        assert again == first
        assert (await get_one(store, row.id)).retry_count == 1

    async def test_two_outcomes_of_one_attempt_in_one_batch_act_in_order(
        self, store: Store
    ) -> None:
        row, other = await start_many(store, 2)
        answers = await store.apply(
            [ending(row, Released()), ending(other, Succeeded()), ending(row, Succeeded())]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.APPLIED,
            Status.STALE,
        ]
        assert (await get_one(store, row.id)).state is State.QUEUED

    async def test_a_large_batch_is_settled_whole(self, store: Store) -> None:
        rows = await start_many(store, 100)
        answers = await store.apply(
            [
                ending(row, Succeeded(result=str(n).encode()) if n % 2 else Released())
                for n, row in enumerate(rows)
            ]
        )
        assert all(answer.applied for answer in answers)
        stored = await store.get([row.id for row in rows])
        assert [row and row.result for row in stored] == [
            str(n).encode() if n % 2 else None for n in range(100)
        ]
        assert len(await claim_all(store)) == 50

    # -- last words

    @every_outcome
    async def test_a_settle_carries_the_last_words_of_its_attempt(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        words = [
            Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0, stage="parse"),
            Record(n=2, type=EventType.LOG, body=b'"nearly"'),
            Record(n=3, type=EventType.STEP_STATUS, step="parse", checkpoint=b"7"),
        ]
        wish = ending(row, outcome, records=words)
        await apply_one(store, wish)
        await apply_one(store, wish)
        said = [e for e in await read_events(store, row.id) if e.type is not EventType.JOB_STATUS]
        assert [e.type for e in said[:3]] == [word.type for word in words]
        assert said[1].body == b'"nearly"'
        assert len([e for e in said if e.type is EventType.LOG]) == 1
        [steps] = await store.checkpoints([row.id])
        assert steps["parse"].value == b"7"
        after_it = await get_one(store, row.id)
        assert after_it.stage == "parse"
        assert after_it.percent == (100 if isinstance(outcome, Succeeded) else 40)

    async def test_words_already_heard_are_not_written_again_by_the_settle(
        self, store: Store
    ) -> None:
        row = await start_one(store)
        words = [Record(n=n, type=EventType.LOG, body=str(n).encode()) for n in (1, 2, 3)]
        await store.record([Saying(row.lease, words[:2])])
        await settle_one(store, row, Succeeded(), records=words)
        logs = [e.body for e in await read_events(store, row.id) if e.type is EventType.LOG]
        assert logs == [b"1", b"2", b"3"]

    async def test_a_stale_settle_says_nothing(self, store: Store) -> None:
        row = await start_one(store)
        before = await read_events(store, row.id)
        words = [Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0)]
        wish = ending(row, Succeeded(), records=words)
        await apply_one(store, replace(wish, token=uuid7()))
        assert await read_events(store, row.id) == before

    async def test_oversize_last_words_refuse_the_settle(self, store: Store) -> None:
        row = await start_one(store)
        words = [Record(n=1, type=EventType.LOG, body=b"x" * (sizes.MAX_EVENT + 1))]
        answer = await settle_one(store, row, Succeeded(), records=words)
        assert answer.status is Status.REFUSED
        assert await get_one(store, row.id) == row
