"""Fairness: jobs of different limit keys alternate, whatever the backlog of one key."""

from __future__ import annotations

from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Released, Succeeded, settle
from windlass.core.decisions.transition import submit
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.jobs.order import claim_order, needs_fifo
from windlass.testing.conformance.limits.concurrency import (
    QUEUE,
    TASK,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    make_job,
    no_jitter,
    settle_one,
    sweep_all,
)


async def order_of(store: Store, *, most: int = 1000) -> list[str]:
    """Return the limit keys of all jobs, claimed one by one."""
    keys: list[str] = []
    while len(keys) < most and (claimed := await claim_all(store, limit=1)):
        keys += [row.limit_key or "-" for row in claimed]
        await settle_all(store, claimed)
    return keys


class TestFairness:
    async def test_a_new_key_does_not_wait_for_the_backlog_of_another(self, store: Store) -> None:
        await enqueue_several(store, 500, limit_key="ada")
        await enqueue_several(store, 1, limit_key="bob")
        assert "b" in "".join(key[0] for key in await order_of(store, most=2))

    async def test_keys_alternate(self, store: Store) -> None:
        await enqueue_several(store, 6, limit_key="ada")
        await enqueue_several(store, 3, limit_key="bob")
        await enqueue_several(store, 2, limit_key="eve")
        order = await order_of(store)
        assert sorted(order[:3]) == sorted(order[3:6]) == ["ada", "bob", "eve"]
        assert sorted(order[6:8]) == ["ada", "bob"]
        assert order[8:] == ["ada"] * 3

    async def test_jobs_of_one_key_stay_in_order(self, store: Store) -> None:
        ada = await enqueue_several(store, 5, limit_key="ada")
        bob = await enqueue_several(store, 5, limit_key="bob")
        ada += await enqueue_several(store, 2, limit_key="ada")
        claimed = await claim_all(store)
        assert [row.id for row in claimed if row.limit_key == "ada"] == [row.id for row in ada]
        assert [row.id for row in claimed if row.limit_key == "bob"] == [row.id for row in bob]

    async def test_one_enqueue_with_many_keys_is_fair(self, store: Store) -> None:
        keys = ["ada"] * 4 + ["bob"] * 2 + [None] + ["ada", "bob"]
        answers = await store.enqueue([make_job(limit_key=key) for key in keys])
        assert all(answer.accepted for answer in answers)
        order = await order_of(store)
        assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:6]) == ["ada", "bob"]

    async def test_a_recently_served_key_does_not_always_come_first(self, store: Store) -> None:
        await enqueue_several(store, 4, limit_key="ada")
        order = []
        for _ in range(4):
            await enqueue_one(store, limit_key="bob")
            row = await claim_one(store)
            order.append(row.limit_key)
            await settle_all(store, [row])
        assert order.count("ada") >= 2

    async def test_two_active_keys_do_not_starve_a_third(self, store: Store) -> None:
        await enqueue_several(store, 4, limit_key="ada")
        await enqueue_several(store, 1, limit_key="bob")
        await enqueue_several(store, 1, limit_key="eve")
        order = []
        for _ in range(9):
            row = await claim_one(store)
            order.append(row.limit_key)
            await settle_all(store, [row])
            if row.limit_key != "ada":
                await enqueue_one(store, limit_key=row.limit_key)
        assert order.count("ada") >= 3

    async def test_ids_from_the_past_gain_no_position(self, store: Store) -> None:
        await enqueue_several(store, 4, limit_key="ada")
        order = []
        for number in range(1, 5):
            await enqueue_one(store, limit_key="bob", id=UUID(int=number))  # from a slow clock
            row = await claim_one(store)
            order.append(row.limit_key)
            await settle_all(store, [row])
        assert order.count("ada") >= 2

    async def test_a_released_job_is_queued_behind_the_jobs_of_its_key(self, store: Store) -> None:
        first, second = await enqueue_several(store, 2, limit_key="ada")
        other = await enqueue_several(store, 2, limit_key="bob")
        row = await claim_one(store)
        assert row.id == first.id
        await settle_one(store, row, Released())
        claimed = await claim_all(store)
        own = [row.id for row in claimed if row.limit_key == "ada"]
        assert own == [second.id, first.id]
        assert {row.id for row in claimed[:2]} == {second.id, other[0].id}

    async def test_a_repeated_job_in_a_call_delays_no_job_of_its_key(self, store: Store) -> None:
        needs_fifo(store)
        again = make_job(limit_key="ada")
        await store.enqueue([again])
        bobs = [make_job(limit_key="bob") for _ in range(3)]
        await store.enqueue(bobs)
        new = make_job(limit_key="ada")
        await store.enqueue([again, new, again])
        expected = [again, bobs[0], new, *bobs[1:]]
        assert await claim_order(store) == [job.id for job in expected]

    async def test_a_repeated_finished_job_frees_no_position(self, store: Store) -> None:
        needs_fifo(store)
        ended = make_job(limit_key="ada")
        await store.enqueue([ended])
        await settle_one(store, await claim_one(store), Succeeded())
        bob, eve = make_job(limit_key="bob"), make_job(limit_key="eve")
        await store.enqueue([ended, eve, bob])
        assert await claim_order(store) == [eve.id, bob.id]

    async def test_keys_alternate_at_a_gate(self, store: Store) -> None:
        await set_limit(store, "queue:default", concurrency=1)
        await enqueue_several(store, 50, limit_key="ada")
        await enqueue_several(store, 2, limit_key="bob")
        assert (await order_of(store, most=4)).count("bob") >= 1
        assert (await order_of(store, most=4)).count("bob") >= 1

    async def test_keys_of_several_queues_alternate_at_a_gate(self, store: Store) -> None:
        await set_limit(store, "task:test.noop", concurrency=2)
        wanted = [("default", "ada"), ("mail", "ada"), ("default", "bob")]
        answers = await store.enqueue(
            [make_job(queue=queue_name, limit_key=key) for queue_name, key in wanted]
        )
        gates = [answer.row.gate for answer in answers if answer.row is not None]
        assert gates == [None, "task:test.noop", None]

    async def test_keys_alternate_within_each_priority(self, store: Store) -> None:
        await enqueue_several(store, 3, limit_key="ada", priority=1)
        await enqueue_several(store, 2, limit_key="bob")
        assert await order_of(store) == ["ada", "ada", "ada", "bob", "bob"]

    async def test_jobs_without_a_key_stay_in_arrival_order(self, store: Store) -> None:
        plain = await enqueue_several(store, 3)
        await enqueue_several(store, 3, limit_key="ada")
        more = await enqueue_several(store, 3)
        claimed = await claim_all(store)
        own = [row.id for row in claimed if row.limit_key is None]
        assert own == [row.id for row in [*plain, *more]]
        await store.apply([settle(row, Succeeded(), random=no_jitter) for row in claimed])

    @pytest.mark.parametrize("limited", [False, True])
    async def test_a_claimed_row_with_a_key_equals_the_stored_row(
        self, store: Store, clock: VirtualClock, limited: bool
    ) -> None:
        if limited:
            await set_limit(store, TASK, concurrency=5)
        [now] = await enqueue_several(store, 1, limit_key="ada")
        [later] = await enqueue_several(store, 1, limit_key="ada", delay=5)
        [held] = await enqueue_several(store, 1, limit_key="bob", hold=True)
        child = await enqueue_one(store, limit_key="eve", depends_on=(now.id,))
        clock.advance(10)
        await sweep_all(store)
        await store.apply([submit(held.id)])
        claimed = await claim_all(store)
        [first] = [row for row in claimed if row.id == now.id]
        await settle_one(store, first, Succeeded())
        claimed = [row for row in claimed if row is not first] + await claim_all(store)
        assert {row.id for row in claimed} == {later.id, held.id, child.id}
        for row in claimed:
            kept = await get_one(store, row.id)
            assert (row.queued_at, row.position) == (kept.queued_at, kept.position)

    async def test_the_first_job_of_an_empty_queue_comes_first_with_or_without_a_key(
        self, store: Store
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        [before] = await enqueue_several(store, 1)
        waiting = [
            (await enqueue_several(store, 1, limit_key=key))[0]
            for key in ("ada", None, "eve", "ada")
        ]
        [row] = await claim_all(store)
        assert row.id == before.id
        await set_limit(store, TASK, concurrency=9)
        await settle_one(store, row, Succeeded())
        await sweep_all(store)
        positions = [
            (await get_one(store, waiting_job.id)).position or 0 for waiting_job in waiting
        ]
        assert [position - positions[0] for position in positions] == [0, 1, 1, 2]

    @pytest.mark.parametrize("how", ["enqueued", "released", "admitted"])
    async def test_a_job_positioned_before_the_head_becomes_the_head(
        self, store: Store, how: str
    ) -> None:
        """Jobs of one key are two positions apart, ahead of the arrival counter."""
        newcomers: list[JobRow] = []
        before: list[JobRow] = []
        if how == "released":
            await store.enqueue([make_job(limit_key=key) for key in (None, "eve")])
            newcomers = await claim_all(store)
        if how == "admitted":
            await set_limit(store, TASK, concurrency=1)
            await enqueue_several(store, 1)
            before = await claim_all(store)
            newcomers = [
                (await enqueue_several(store, 1, limit_key=key))[0] for key in (None, "eve")
            ]
        many = await enqueue_several(store, 40, limit_key="ada", task="test.other")
        taken = await claim_all(store, limit=39)
        assert [row.id for row in taken] == [row.id for row in many[:39]]
        if how == "enqueued":
            jobs = [make_job(limit_key=key) for key in (None, "eve")]
            newcomers = [answer.row for answer in await store.enqueue(jobs) if answer.row]
        elif how == "released":
            await store.apply([settle(row, Released(), random=no_jitter) for row in newcomers])
        else:
            await set_limit(store, TASK, concurrency=9)
            await settle_all(store, before)
            await sweep_all(store)
        rows = [*newcomers, many[39]]
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows]

    async def test_a_job_positioned_before_the_head_of_a_gate_becomes_its_head(
        self, store: Store
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 1)
        assert len(await claim_all(store)) == 1
        newcomers = [(await enqueue_several(store, 1, limit_key=key))[0] for key in (None, "eve")]
        await enqueue_several(store, 2, limit_key="ada", task="test.other")
        await set_limit(store, TASK, concurrency=9)
        await sweep_all(store)
        rows = [await get_one(store, row.id) for row in newcomers]
        assert [row.gate for row in rows] == [QUEUE, QUEUE]
        assert rows[0].position == newcomers[0].position
        assert rows[1].position == (newcomers[0].position or 0) + 1
