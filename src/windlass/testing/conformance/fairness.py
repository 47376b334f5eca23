"""Turns: keys of one queue go one beside the other, however much one of them has waiting."""

from __future__ import annotations

from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Released, Succeeded, settle, submit
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import QUEUE, TASK, end_all, put_in, set_limit
from windlass.testing.conformance.order import needs_fifo, one_by_one
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    even,
    get_one,
    make_job,
    settle_one,
    sweep_all,
)


async def order_of(store: Store, *, most: int = 1000) -> list[str]:
    """The keys of all that is claimed, one by one."""
    keys: list[str] = []
    while len(keys) < most and (claimed := await claim_all(store, limit=1)):
        keys += [row.limit_key or "-" for row in claimed]
        await end_all(store, claimed)
    return keys


class TestTurns:
    async def test_a_key_that_comes_later_does_not_wait_for_the_backlog_of_another(
        self, store: Store
    ) -> None:
        await put_in(store, 500, limit_key="ada")
        await put_in(store, 1, limit_key="bob")
        assert "b" in "".join(key[0] for key in await order_of(store, most=2))

    async def test_keys_take_turns(self, store: Store) -> None:
        await put_in(store, 6, limit_key="ada")
        await put_in(store, 3, limit_key="bob")
        await put_in(store, 2, limit_key="eve")
        order = await order_of(store)
        assert sorted(order[:3]) == sorted(order[3:6]) == ["ada", "bob", "eve"]
        assert sorted(order[6:8]) == ["ada", "bob"]
        assert order[8:] == ["ada"] * 3

    async def test_each_keys_own_jobs_stay_in_order(self, store: Store) -> None:
        ada = await put_in(store, 5, limit_key="ada")
        bob = await put_in(store, 5, limit_key="bob")
        ada += await put_in(store, 2, limit_key="ada")
        claimed = await claim_all(store)
        assert [row.id for row in claimed if row.limit_key == "ada"] == [row.id for row in ada]
        assert [row.id for row in claimed if row.limit_key == "bob"] == [row.id for row in bob]

    async def test_one_call_with_many_keys_is_fair_within(self, store: Store) -> None:
        keys = ["ada"] * 4 + ["bob"] * 2 + [None] + ["ada", "bob"]
        answers = await store.enqueue([make_job(limit_key=key) for key in keys])
        assert all(answer.accepted for answer in answers)
        order = await order_of(store)
        assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:6]) == ["ada", "bob"]

    async def test_a_key_that_was_served_does_not_come_back_first_for_ever(
        self, store: Store
    ) -> None:
        await put_in(store, 4, limit_key="ada")
        order = []
        for _ in range(4):
            await enqueue_one(store, limit_key="bob")
            row = await claim_one(store)
            order.append(row.limit_key)
            await end_all(store, [row])
        assert order.count("ada") >= 2

    async def test_two_who_come_back_after_each_turn_do_not_keep_a_third_waiting(
        self, store: Store
    ) -> None:
        await put_in(store, 4, limit_key="ada")
        await put_in(store, 1, limit_key="bob")
        await put_in(store, 1, limit_key="eve")
        order = []
        for _ in range(9):
            row = await claim_one(store)
            order.append(row.limit_key)
            await end_all(store, [row])
            if row.limit_key != "ada":
                await enqueue_one(store, limit_key=row.limit_key)
        assert order.count("ada") >= 3

    async def test_ids_that_are_older_than_they_should_be_win_no_turns(self, store: Store) -> None:
        await put_in(store, 4, limit_key="ada")
        order = []
        for number in range(1, 5):
            await enqueue_one(store, limit_key="bob", id=UUID(int=number))  # a clock that is slow
            row = await claim_one(store)
            order.append(row.limit_key)
            await end_all(store, [row])
        assert order.count("ada") >= 2

    async def test_a_job_that_is_given_back_stands_behind_its_keys_own(self, store: Store) -> None:
        first, second = await put_in(store, 2, limit_key="ada")
        other = await put_in(store, 2, limit_key="bob")
        row = await claim_one(store)
        assert row.id == first.id
        await settle_one(store, row, Released())
        claimed = await claim_all(store)
        own = [row.id for row in claimed if row.limit_key == "ada"]
        assert own == [second.id, first.id]
        assert {row.id for row in claimed[:2]} == {second.id, other[0].id}

    async def test_who_comes_again_in_a_call_sets_nobody_of_its_key_back(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        again = make_job(limit_key="ada")
        await store.enqueue([again])
        bobs = [make_job(limit_key="bob") for _ in range(3)]
        await store.enqueue(bobs)
        new = make_job(limit_key="ada")
        await store.enqueue([again, new, again])
        expected = [again, bobs[0], new, *bobs[1:]]
        assert await one_by_one(store) == [job.id for job in expected]

    async def test_who_comes_again_and_has_ended_gives_nobody_its_place(self, store: Store) -> None:
        needs_fifo(store)
        ended = make_job(limit_key="ada")
        await store.enqueue([ended])
        await settle_one(store, await claim_one(store), Succeeded())
        bob, eve = make_job(limit_key="bob"), make_job(limit_key="eve")
        await store.enqueue([ended, eve, bob])
        assert await one_by_one(store) == [eve.id, bob.id]

    async def test_turns_hold_at_a_gate_too(self, store: Store) -> None:
        await set_limit(store, "queue:default", concurrency=1)
        await put_in(store, 50, limit_key="ada")
        await put_in(store, 2, limit_key="bob")
        assert (await order_of(store, most=4)).count("bob") >= 1
        assert (await order_of(store, most=4)).count("bob") >= 1

    async def test_at_a_gate_keys_of_several_queues_take_turns(self, store: Store) -> None:
        await set_limit(store, "task:test.noop", concurrency=2)
        wanted = [("default", "ada"), ("mail", "ada"), ("default", "bob")]
        answers = await store.enqueue([make_job(queue=it, limit_key=key) for it, key in wanted])
        gates = [answer.row.gate for answer in answers if answer.row is not None]
        assert gates == [None, "task:test.noop", None]

    async def test_priorities_have_turns_of_their_own(self, store: Store) -> None:
        await put_in(store, 3, limit_key="ada", priority=1)
        await put_in(store, 2, limit_key="bob")
        assert await order_of(store) == ["ada", "ada", "ada", "bob", "bob"]

    async def test_jobs_without_a_key_stay_in_the_order_of_their_arrival(
        self, store: Store
    ) -> None:
        plain = await put_in(store, 3)
        await put_in(store, 3, limit_key="ada")
        more = await put_in(store, 3)
        claimed = await claim_all(store)
        own = [row.id for row in claimed if row.limit_key is None]
        assert own == [row.id for row in [*plain, *more]]
        await store.apply([settle(row, Succeeded(), random=even) for row in claimed])

    @pytest.mark.parametrize("limited", [False, True])
    async def test_a_claim_tells_of_a_job_with_a_key_what_its_row_says(
        self, store: Store, clock: VirtualClock, limited: bool
    ) -> None:
        if limited:
            await set_limit(store, TASK, concurrency=5)
        [now] = await put_in(store, 1, limit_key="ada")
        [later] = await put_in(store, 1, limit_key="ada", delay=5)
        [held] = await put_in(store, 1, limit_key="bob", hold=True)
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

    async def test_who_comes_first_into_an_empty_line_stands_first_with_or_without_a_key(
        self, store: Store
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        [before] = await put_in(store, 1)
        waiting = [
            (await put_in(store, 1, limit_key=key))[0] for key in ("ada", None, "eve", "ada")
        ]
        [row] = await claim_all(store)
        assert row.id == before.id
        await set_limit(store, TASK, concurrency=9)
        await settle_one(store, row, Succeeded())
        await sweep_all(store)
        places = [(await get_one(store, one.id)).position or 0 for one in waiting]
        assert [place - places[0] for place in places] == [0, 1, 1, 2]

    @pytest.mark.parametrize("how", ["put in", "given back", "let in"])
    async def test_whoever_comes_before_the_first_is_the_first_for_those_who_come_next(
        self, store: Store, how: str
    ) -> None:
        """Jobs of one key stand two apart, and so ahead of the count of arrivals."""
        comers: list[JobRow] = []
        before: list[JobRow] = []
        if how == "given back":
            await store.enqueue([make_job(limit_key=key) for key in (None, "eve")])
            comers = await claim_all(store)
        if how == "let in":
            await set_limit(store, TASK, concurrency=1)
            await put_in(store, 1)
            before = await claim_all(store)
            comers = [(await put_in(store, 1, limit_key=key))[0] for key in (None, "eve")]
        many = await put_in(store, 40, limit_key="ada", task="test.other")
        taken = await claim_all(store, limit=39)
        assert [row.id for row in taken] == [row.id for row in many[:39]]
        if how == "put in":
            jobs = [make_job(limit_key=key) for key in (None, "eve")]
            comers = [answer.row for answer in await store.enqueue(jobs) if answer.row]
        elif how == "given back":
            await store.apply([settle(row, Released(), random=even) for row in comers])
        else:
            await set_limit(store, TASK, concurrency=9)
            await end_all(store, before)
            await sweep_all(store)
        rows = [*comers, many[39]]
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows]

    async def test_whoever_comes_to_the_next_gate_before_the_first_is_the_first_there(
        self, store: Store
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 1)
        assert len(await claim_all(store)) == 1
        comers = [(await put_in(store, 1, limit_key=key))[0] for key in (None, "eve")]
        await put_in(store, 2, limit_key="ada", task="test.other")
        await set_limit(store, TASK, concurrency=9)
        await sweep_all(store)
        rows = [await get_one(store, row.id) for row in comers]
        assert [row.gate for row in rows] == [QUEUE, QUEUE]
        assert rows[0].position == comers[0].position
        assert rows[1].position == (comers[0].position or 0) + 1
