"""Hand-over: children become real with the success that carries them, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.core import sizes
from windlass.core.clock import after
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    settle,
)
from windlass.core.decisions.transition import Status
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    cancel_one,
    claim_all,
    claim_one,
    enqueue_one,
    even,
    get_one,
    make_failure,
    make_job,
    settle_one,
    start_one,
    sweep_all,
)

WITHOUT_SUCCESS: dict[str, Outcome] = {
    "retry": Failed(failure=make_failure()),
    "failure": Failed(failure=make_failure(terminal=True)),
    "release": Released(),
    "snooze": Snoozed(delay=5.0),
    "abort": Aborted(),
}


class TestHandover:
    async def test_children_come_to_be_with_the_success_of_their_parent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        children = [
            make_job(task="next", payload=b'"a"', tags=("t",), owner="ada"),
            make_job(queue="other", payload=b"x" * 50_000),
            make_job(delay=60.0),
            make_job(hold=True),
        ]
        answer = await settle_one(store, parent, Succeeded(), children=children)
        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
        first, second, third, fourth = [await get_one(store, child.id) for child in children]
        assert (first.task, first.payload, first.tags) == ("next", b'"a"', ("t",))
        assert (first.owner, first.created_at) == ("ada", clock.now())
        assert (second.queue, second.payload) == ("other", b"x" * 50_000)
        assert (third.state, third.due_at) == (State.CREATED, after(clock.now(), 60))
        assert (fourth.state, fourth.held) == (State.CREATED, True)
        assert [row.id for row in await claim_all(store, "default", "other")] == [
            first.id,
            second.id,
        ]

    async def test_children_join_the_line_in_their_order(self, store: Store) -> None:
        if not store.capabilities.fifo:
            pytest.skip("this store promises no order within a priority")
        parent = await start_one(store)
        waiting = await enqueue_one(store)
        children = [make_job() for _ in range(5)]
        await settle_one(store, parent, Succeeded(), children=children)
        behind = await enqueue_one(store)
        line = [waiting.id, *(child.id for child in children), behind.id]
        assert [row.id for row in await claim_all(store)] == line

    async def test_a_repeated_success_hands_over_once(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job()
        wish = settle(parent, Succeeded(), random=even, children=[child])
        first = await apply_one(store, wish)
        [row] = await claim_all(store)
        assert await apply_one(store, wish) == first
        assert await get_one(store, child.id) == row
        assert await claim_all(store) == []

    @pytest.mark.parametrize("outcome", WITHOUT_SUCCESS.values(), ids=WITHOUT_SUCCESS.keys())
    async def test_without_success_nothing_is_handed_over(
        self, store: Store, outcome: Outcome
    ) -> None:
        parent = await start_one(store)
        child = make_job()
        wish = replace(settle(parent, outcome, random=even), children=(child,))
        assert (await apply_one(store, wish)).applied
        assert await store.get([child.id]) == [None]

    async def test_a_stale_success_hands_over_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        ghost = await start_one(store)
        clock.advance(31)
        await sweep_all(store)
        holder = await claim_one(store)
        child = make_job()
        answer = await settle_one(store, ghost, Succeeded(), children=[child])
        assert answer.status is Status.STALE
        assert await store.get([child.id]) == [None]
        assert (await settle_one(store, holder, Succeeded(), children=[child])).applied
        assert (await get_one(store, child.id)).state is State.QUEUED

    async def test_a_success_for_an_unknown_job_hands_over_nothing(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job()
        wish = settle(parent, Succeeded(), random=even, children=[child])
        assert (await apply_one(store, replace(wish, job_id=uuid7()))).status is Status.MISSING
        assert await store.get([child.id]) == [None]

    async def test_a_canceled_job_hands_over_nothing(self, store: Store) -> None:
        parent = await start_one(store)
        await cancel_one(store, parent.id)
        child = make_job()
        wish = settle(parent, Succeeded(), random=even, children=[child])
        first, again = await apply_one(store, wish), await apply_one(store, wish)
        assert (first.status, first.state) == (Status.APPLIED, State.CANCELED)
        assert again == first
        assert await store.get([child.id]) == [None]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"payload": b"x" * (sizes.MAX_BLOB + 1)},
            {"task": ""},
            {"delay": -1.0},
            {"delay": float("nan")},
            {"lease": float("inf")},
            {"owner": "\ud800"},
        ],
        ids=["payload", "task", "delay", "no number", "lease", "text"],
    )
    async def test_a_bad_child_refuses_the_settle_and_leaves_its_neighbours_alone(
        self, store: Store, wrong: dict[str, Any]
    ) -> None:
        await store.enqueue([make_job(), make_job()])
        parent, neighbour = await claim_all(store)
        good, bad = make_job(), make_job(**wrong)
        answers = await store.apply(
            [
                settle(parent, Succeeded(), random=even, children=[good, bad]),
                settle(neighbour, Succeeded(), random=even),
            ]
        )
        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert answers[0].error is not None
        assert await get_one(store, parent.id) == parent, "it runs on, and may still be settled"
        assert await store.get([good.id, bad.id]) == [None, None]
        assert (await settle_one(store, parent, Succeeded(), children=[good])).applied
        assert (await get_one(store, good.id)).state is State.QUEUED

    async def test_a_child_that_cannot_come_to_be_refuses_the_settle(self, store: Store) -> None:
        """All or none: a child in conflict with what is stored is not dropped in silence."""
        await enqueue_one(store, request_id="r", digest=b"one thing", hold=True)
        parent = await start_one(store)
        good, bad = make_job(), make_job(request_id="r", digest=b"another")

        answer = await settle_one(store, parent, Succeeded(), children=[good, bad])

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "conflict"
        assert await get_one(store, parent.id) == parent
        assert await store.get([good.id]) == [None]

    async def test_children_that_contradict_each_other_refuse_the_settle(
        self, store: Store
    ) -> None:
        parent = await start_one(store)
        child = make_job()

        answer = await settle_one(store, parent, Succeeded(), children=[child, child])

        assert answer.status is Status.REFUSED
        assert await store.get([child.id]) == [None]

    async def test_a_child_whose_key_is_held_is_stood_for_by_the_holder(self, store: Store) -> None:
        parent = await start_one(store)
        holder = await enqueue_one(store, unique_key="k")
        child, sibling = make_job(unique_key="k"), make_job()
        assert (await settle_one(store, parent, Succeeded(), children=[child, sibling])).applied
        assert await store.get([child.id]) == [None]
        assert {row.id for row in await claim_all(store)} == {holder.id, sibling.id}

    async def test_a_child_may_take_over_its_parents_key(self, store: Store) -> None:
        parent = await start_one(store, unique_key="k")
        child = make_job(unique_key="k")
        await settle_one(store, parent, Succeeded(), children=[child])
        assert (await get_one(store, child.id)).state is State.QUEUED

    async def test_a_child_may_give_way_to_a_later_one_of_the_same_batch(
        self, store: Store
    ) -> None:
        await store.enqueue([make_job(), make_job()])
        first, second = await claim_all(store)
        older = make_job(unique_key="k")
        newer = make_job(unique_key="k", debounce=True)
        answers = await store.apply(
            [
                settle(first, Succeeded(), random=even, children=[older]),
                settle(second, Succeeded(), random=even, children=[newer]),
            ]
        )
        assert [answer.status for answer in answers] == [Status.APPLIED] * 2
        assert (await get_one(store, older.id)).state is State.CANCELED
        assert [row.id for row in await claim_all(store)] == [newer.id]
