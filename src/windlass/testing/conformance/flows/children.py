"""Children of a success: a success and its children are stored in one write or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.core import size_limits
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
    get_one,
    make_failure,
    make_job,
    no_jitter,
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


class TestChildren:
    async def test_a_success_creates_its_children(self, store: Store, clock: VirtualClock) -> None:
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

    async def test_children_are_queued_in_their_order(self, store: Store) -> None:
        if not store.capabilities.fifo:
            pytest.skip("this store promises no order within a priority")
        parent = await start_one(store)
        waiting = await enqueue_one(store)
        children = [make_job() for _ in range(5)]
        await settle_one(store, parent, Succeeded(), children=children)
        behind = await enqueue_one(store)
        order = [waiting.id, *(child.id for child in children), behind.id]
        assert [row.id for row in await claim_all(store)] == order

    async def test_a_repeated_success_creates_its_children_once(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job()
        transition = settle(parent, Succeeded(), random=no_jitter, children=[child])
        first = await apply_one(store, transition)
        [row] = await claim_all(store)
        assert await apply_one(store, transition) == first
        assert await get_one(store, child.id) == row
        assert await claim_all(store) == []

    @pytest.mark.parametrize("outcome", WITHOUT_SUCCESS.values(), ids=WITHOUT_SUCCESS.keys())
    async def test_without_a_success_no_children_are_created(
        self, store: Store, outcome: Outcome
    ) -> None:
        parent = await start_one(store)
        child = make_job()
        transition = replace(settle(parent, outcome, random=no_jitter), children=(child,))
        assert (await apply_one(store, transition)).applied
        assert await store.get([child.id]) == [None]

    async def test_a_stale_success_creates_no_children(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stale = await start_one(store)
        clock.advance(31)
        await sweep_all(store)
        holder = await claim_one(store)
        child = make_job()
        answer = await settle_one(store, stale, Succeeded(), children=[child])
        assert answer.status is Status.STALE
        assert await store.get([child.id]) == [None]
        assert (await settle_one(store, holder, Succeeded(), children=[child])).applied
        assert (await get_one(store, child.id)).state is State.QUEUED

    async def test_a_success_of_an_unknown_job_creates_no_children(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job()
        transition = settle(parent, Succeeded(), random=no_jitter, children=[child])
        assert (
            await apply_one(store, replace(transition, job_id=uuid7()))
        ).status is Status.MISSING
        assert await store.get([child.id]) == [None]

    async def test_a_canceled_job_creates_no_children(self, store: Store) -> None:
        parent = await start_one(store)
        await cancel_one(store, parent.id)
        child = make_job()
        transition = settle(parent, Succeeded(), random=no_jitter, children=[child])
        first, again = await apply_one(store, transition), await apply_one(store, transition)
        assert (first.status, first.state) == (Status.APPLIED, State.CANCELED)
        assert again == first
        assert await store.get([child.id]) == [None]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"payload": b"x" * (size_limits.MAX_BLOB + 1)},
            {"task": ""},
            {"delay": -1.0},
            {"delay": float("nan")},
            {"lease": float("inf")},
            {"owner": "\ud800"},
        ],
        ids=["payload", "task", "delay", "no number", "lease", "text"],
    )
    async def test_an_invalid_child_refuses_its_settle_and_no_other(
        self, store: Store, wrong: dict[str, Any]
    ) -> None:
        await store.enqueue([make_job(), make_job()])
        parent, other = await claim_all(store)
        good, bad = make_job(), make_job(**wrong)
        answers = await store.apply(
            [
                settle(parent, Succeeded(), random=no_jitter, children=[good, bad]),
                settle(other, Succeeded(), random=no_jitter),
            ]
        )
        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert answers[0].error is not None
        assert await get_one(store, parent.id) == parent, "it runs on, and may still be settled"
        assert await store.get([good.id, bad.id]) == [None, None]
        assert (await settle_one(store, parent, Succeeded(), children=[good])).applied
        assert (await get_one(store, good.id)).state is State.QUEUED

    async def test_a_child_that_cannot_be_created_refuses_the_settle(self, store: Store) -> None:
        """All or none: a child that conflicts with a stored job is not dropped silently."""
        await enqueue_one(store, request_id="r", digest=b"one thing", hold=True)
        parent = await start_one(store)
        good, bad = make_job(), make_job(request_id="r", digest=b"another")

        answer = await settle_one(store, parent, Succeeded(), children=[good, bad])

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "conflict"
        assert await get_one(store, parent.id) == parent
        assert await store.get([good.id]) == [None]

    async def test_conflicting_children_refuse_the_settle(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job()

        answer = await settle_one(store, parent, Succeeded(), children=[child, child])

        assert answer.status is Status.REFUSED
        assert await store.get([child.id]) == [None]

    async def test_a_child_with_a_used_key_is_a_duplicate_of_the_holder(self, store: Store) -> None:
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

    async def test_a_child_may_be_displaced_by_a_later_one_of_the_same_batch(
        self, store: Store
    ) -> None:
        await store.enqueue([make_job(), make_job()])
        first, second = await claim_all(store)
        older = make_job(unique_key="k")
        newer = make_job(unique_key="k", debounce=True)
        answers = await store.apply(
            [
                settle(first, Succeeded(), random=no_jitter, children=[older]),
                settle(second, Succeeded(), random=no_jitter, children=[newer]),
            ]
        )
        assert [answer.status for answer in answers] == [Status.APPLIED] * 2
        assert (await get_one(store, older.id)).state is State.CANCELED
        assert [row.id for row in await claim_all(store)] == [newer.id]
