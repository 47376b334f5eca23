"""Rate limits: at most N starts in any period, and no capacity left unused."""

from __future__ import annotations

from windlass.core.clock import after
from windlass.core.decisions.outcome import Released
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    QUEUE,
    TASK,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import cancel_one, claim_all, settle_one, sweep_all


class TestRates:
    async def test_a_rate_limits_the_starts_in_any_period(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=2, period=10)
        rows = await enqueue_several(store, 5)
        started = []
        for second in range(30):
            for row in await claim_all(store):
                started.append((second, row.id))
                await settle_all(store, [row])
            clock.advance(1)
            await sweep_all(store)
        assert started == list(zip([0, 0, 10, 10, 20], [row.id for row in rows], strict=True))

    async def test_an_admitted_job_that_has_not_started_counts(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=2, period=10)
        rows = await enqueue_several(store, 4)
        clock.advance(25)  # no job started
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[:2]]
        clock.advance(9)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:]]

    async def test_a_start_counts_after_its_job_ends_or_starts_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        first, second = await enqueue_several(store, 2)
        [row] = await claim_all(store)
        clock.advance(4)
        await settle_one(store, row, Released())
        assert await claim_all(store) == []
        clock.advance(6)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [second.id]
        await store.delete([second.id])
        clock.advance(9)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        assert [(row.id, row.attempt) for row in await claim_all(store)] == [(first.id, 2)]

    async def test_each_attempt_of_a_job_is_a_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=2, period=10)
        [job] = await enqueue_several(store, 1)
        [row] = await claim_all(store)
        await settle_one(store, row, Released())
        [again] = await claim_all(store)
        assert (again.id, again.attempt) == (job.id, 2)
        [other] = await enqueue_several(store, 1)
        clock.advance(9)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [other.id]

    async def test_a_canceled_job_that_never_started_does_not_count(self, store: Store) -> None:
        await set_limit(store, TASK, starts=1, period=3600)
        first, second = await enqueue_several(store, 2)
        await cancel_one(store, first.id)
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_a_rate_and_a_concurrency_limit_both_apply(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1, starts=2, period=10)
        rows = await enqueue_several(store, 4)
        for row in rows[:2]:
            [claimed] = await claim_all(store)
            assert claimed.id == row.id
            assert await claim_all(store) == []
            await settle_all(store, [claimed])
        assert await claim_all(store) == []
        clock.advance(10)
        await sweep_all(store)
        [claimed] = await claim_all(store)
        assert claimed.id == rows[2].id
        assert await claim_all(store) == []

    async def test_a_clock_step_back_moves_no_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=2, period=10)
        await enqueue_several(store, 3)
        started_at = clock.now()
        [first] = await claim_all(store, limit=1)
        clock.advance(-3)
        await settle_all(store, [first])
        # One admitted job may start only now, and its start then counts for a full period.
        [found] = await store.insights.gates([QUEUE])
        assert found.next_check_at == after(clock.now(), 10)
        clock.advance(10)
        await sweep_all(store)
        [found] = await store.insights.gates([QUEUE])
        assert (found.waiting, found.next_check_at) == (1, after(started_at, 10))
        clock.advance(3)
        await sweep_all(store)
        [found] = await store.insights.gates([QUEUE])
        assert (found.waiting, found.next_check_at) == (0, None)

    async def test_starts_in_the_future_count(self, store: Store, clock: VirtualClock) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        await enqueue_several(store, 2)
        started_at = clock.now()
        [first] = await claim_all(store)
        clock.advance(-3)
        await settle_all(store, [first])
        [found] = await store.insights.gates([QUEUE])
        assert (found.waiting, found.next_check_at) == (1, after(started_at, 10))

    async def test_a_lowered_rate_counts_starts_in_the_future(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=3, period=10)
        await enqueue_several(store, 4)
        for _ in range(2):
            await claim_all(store, limit=1)
            clock.advance(1)
        started_at = clock.now()
        clock.advance(-9)
        await set_limit(store, QUEUE, starts=1, period=10)
        await sweep_all(store)
        [found] = await store.insights.gates([QUEUE])
        assert (found.waiting, found.next_check_at) == (1, after(started_at, 9))
