"""Rates: so many starts in any stretch of a time, and as many as that."""

from __future__ import annotations

from windlass.core.clock import after
from windlass.core.decisions.outcome import Released
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import QUEUE, TASK, end_all, put_in, set_limit
from windlass.testing.factories import cancel_one, claim_all, settle_one, sweep_all


class TestRates:
    async def test_a_rate_lets_so_many_start_in_any_period(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=2, period=10)
        rows = await put_in(store, 5)
        started = []
        for second in range(30):
            for row in await claim_all(store):
                started.append((second, row.id))
                await end_all(store, [row])
            clock.advance(1)
            await sweep_all(store)
        assert started == list(zip([0, 0, 10, 10, 20], [row.id for row in rows], strict=True))

    async def test_what_was_let_in_and_has_not_started_counts(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=2, period=10)
        rows = await put_in(store, 4)
        clock.advance(25)  # nobody worked
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[:2]]
        clock.advance(9)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:]]

    async def test_a_start_counts_though_its_job_has_ended_or_starts_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        first, second = await put_in(store, 2)
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
        [job] = await put_in(store, 1)
        [row] = await claim_all(store)
        await settle_one(store, row, Released())
        [again] = await claim_all(store)
        assert (again.id, again.attempt) == (job.id, 2)
        [other] = await put_in(store, 1)
        clock.advance(9)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [other.id]

    async def test_a_canceled_job_that_never_started_gives_its_start_back(
        self, store: Store
    ) -> None:
        await set_limit(store, TASK, starts=1, period=3600)
        first, second = await put_in(store, 2)
        await cancel_one(store, first.id)
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_both_a_rate_and_a_concurrency_hold(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1, starts=2, period=10)
        rows = await put_in(store, 4)
        for row in rows[:2]:
            [claimed] = await claim_all(store)
            assert claimed.id == row.id
            assert await claim_all(store) == []
            await end_all(store, [claimed])
        assert await claim_all(store) == []
        clock.advance(10)
        await sweep_all(store)
        [claimed] = await claim_all(store)
        assert claimed.id == rows[2].id
        assert await claim_all(store) == []

    async def test_a_clock_that_was_set_back_moves_no_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=2, period=10)
        await put_in(store, 3)
        begun = clock.now()
        [first] = await claim_all(store, limit=1)
        clock.advance(-3)
        await end_all(store, [first])
        # One has not started, and may do so now: that would be the first to count no more.
        [found] = await store.gates([QUEUE])
        assert found.look_at == after(clock.now(), 10)
        clock.advance(10)
        await sweep_all(store)
        [found] = await store.gates([QUEUE])
        assert (found.waiting, found.look_at) == (1, after(begun, 10))
        clock.advance(3)
        await sweep_all(store)
        [found] = await store.gates([QUEUE])
        assert (found.waiting, found.look_at) == (0, None)

    async def test_starts_that_lie_ahead_are_waited_for(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        await put_in(store, 2)
        begun = clock.now()
        [first] = await claim_all(store)
        clock.advance(-3)
        await end_all(store, [first])
        [found] = await store.gates([QUEUE])
        assert (found.waiting, found.look_at) == (1, after(begun, 10))

    async def test_a_rate_that_is_lowered_counts_starts_that_lie_ahead(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=3, period=10)
        await put_in(store, 4)
        for _ in range(2):
            await claim_all(store, limit=1)
            clock.advance(1)
        begun = clock.now()
        clock.advance(-9)
        await set_limit(store, QUEUE, starts=1, period=10)
        await sweep_all(store)
        [found] = await store.gates([QUEUE])
        assert (found.waiting, found.look_at) == (1, after(begun, 9))
