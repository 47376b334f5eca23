"""Batches of outcomes: each one in a call has its own result and does not affect the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.core import size_limits
from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.outcome import Failed, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import Status
from windlass.core.errors import TooLargeError
from windlass.core.ids import uuid7
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.settle import (
    settle_transition,
    start_many,
)
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    get_one,
    make_failure,
    settle_one,
    start_one,
)


class TestSettleMany:
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
