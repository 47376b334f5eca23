"""Failed parents: the effect of a failed or canceled parent on its children."""

from __future__ import annotations

import pytest

from windlass.core.decisions.outcome import Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import PARENT_FAILED
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.flows.dependencies import BROKEN, child_of, states, store_all
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    make_job,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)


class TestFailedParents:
    @pytest.mark.parametrize("how", ["failure", "cancel", "abandoned"])
    async def test_a_failed_parent_cancels_all_that_depends_on_it(
        self, store: Store, clock: VirtualClock, how: str
    ) -> None:
        parent = await start_one(store, queue="parents")
        child, other = child_of(parent), child_of(parent)
        grandchild = child_of(child)
        await store_all(store, child, other, grandchild)
        if how == "failure":
            await settle_one(store, parent, BROKEN)
        elif how == "cancel":
            await cancel_one(store, parent.id)
            await settle_one(store, parent, Succeeded())
        else:
            for _ in range(3):
                clock.advance(100)
                await sweep_all(store)
                await sweep_all(store)
                clock.advance(100)
                await sweep_all(store)
                await claim_all(store, "parents")
        assert await states(store, child, other, grandchild) == [State.CANCELED] * 3
        row = await get_one(store, child.id)
        assert (row.waiting_for, row.cancel_reason is not None) == (0, True)
        assert str(parent.id) in (row.cancel_reason or "")
        assert str(child.id) in ((await get_one(store, grandchild.id)).cancel_reason or "")
        assert await claim_all(store) == []
        assert (await read_events(store, child.id))[-1].data["status"] == "canceled"

    async def test_a_canceled_waiting_parent_ends_its_children(self, store: Store) -> None:
        parent = await enqueue_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        last = await enqueue_one(store, depends_on=(child.id,), on_parent=OnParent.FAIL)
        await cancel_one(store, parent.id)
        assert await states(store, parent, child, last) == [
            State.CANCELED, State.CANCELED, State.FAILED,
        ]  # fmt: skip

    async def test_a_job_may_fail_with_its_parent(self, store: Store) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,), on_parent=OnParent.FAIL)
        await settle_one(store, parent, BROKEN)
        row = await get_one(store, child.id)
        assert row.state is State.FAILED
        assert row.error is not None
        assert row.error.code == PARENT_FAILED

    async def test_a_job_may_run_after_failed_parents(self, store: Store) -> None:
        parents = [make_job(queue="parents") for _ in range(2)]
        await store_all(store, *parents)
        ids = tuple(parent.id for parent in parents)
        child = await enqueue_one(store, depends_on=ids, on_parent=OnParent.RUN)
        first, second = await claim_all(store, "parents")
        await settle_one(store, first, BROKEN)
        assert (await get_one(store, child.id)).waiting_for == 1
        await settle_one(store, second, Succeeded())
        assert (await claim_one(store)).id == child.id

    async def test_a_parent_that_expires_is_a_failed_parent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await enqueue_one(store, expires_in=10)
        child = await enqueue_one(store, depends_on=(parent.id,))
        clock.advance(11)
        await sweep_all(store)
        assert await states(store, parent, child) == [State.FAILED, State.CANCELED]

    async def test_a_displaced_parent_is_a_failed_parent(self, store: Store) -> None:
        parent = await enqueue_one(store, unique_key="k")
        child = await enqueue_one(store, depends_on=(parent.id,))
        await enqueue_one(store, unique_key="k", debounce=True)
        assert await states(store, parent, child) == [State.CANCELED, State.CANCELED]

    async def test_a_job_that_depends_on_the_job_it_displaces_is_canceled(
        self, store: Store
    ) -> None:
        first = await enqueue_one(store, unique_key="k")
        second = await enqueue_one(store, depends_on=(first.id,))
        third = await enqueue_one(store, unique_key="k", debounce=True, depends_on=(second.id,))
        fourth = await enqueue_one(
            store, unique_key="k", depends_on=(first.id,), on_parent=OnParent.RUN
        )
        ended = [State.CANCELED] * 3
        assert await states(store, first, second, third) == ended
        assert [job.id for job in await claim_all(store)] == [fourth.id]

    async def test_a_whole_flow_is_canceled_in_one_call(self, store: Store) -> None:
        top = make_job()
        middle = [child_of(top) for _ in range(4)]
        bottom = child_of(*middle)
        everything = [top, *middle, bottom]
        await store_all(store, *everything)
        answers = await store.apply([CancelRequest(job_id=job.id) for job in everything])
        assert all(answer.applied for answer in answers)
        assert set(await states(store, *everything)) == {State.CANCELED}

    # -- parents that ended before

    async def test_a_parent_that_failed_before_the_enqueue_cancels_the_child(
        self, store: Store
    ) -> None:
        parent = await start_one(store)
        waiting = await enqueue_one(store, queue="other")
        await settle_one(store, parent, BROKEN)
        ids = (waiting.id, parent.id)
        canceled = await enqueue_one(store, depends_on=ids)
        failed = await enqueue_one(store, depends_on=ids, on_parent=OnParent.FAIL)
        runs = await enqueue_one(store, depends_on=ids, on_parent=OnParent.RUN)
        assert await states(store, canceled, failed, runs) == [
            State.CANCELED, State.FAILED, State.CREATED,
        ]  # fmt: skip
        assert [row.waiting_for for row in (canceled, failed, runs)] == [0, 0, 1]
        assert canceled == await get_one(store, canceled.id)

    # -- children that also wait for something else
