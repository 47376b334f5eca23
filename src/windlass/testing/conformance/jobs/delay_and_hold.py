"""Delay and hold: a job waits for an instant, for a submit, or for both."""

from __future__ import annotations

from windlass.core.clock import after
from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.transition import Status, submit
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    claim_all,
    enqueue_one,
    get_one,
    sweep_all,
)


class TestDelayAndHold:
    async def test_a_delayed_job_waits_until_it_is_due(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await enqueue_one(store, delay=60.0)
        assert row.state is State.CREATED
        assert row.due_at == after(clock.now(), 60)
        assert row.queued_at is None
        assert await claim_all(store) == []
        clock.advance(59.999)
        assert await store.due(10) == []
        clock.advance(0.001)
        assert await store.due(10) == [row]
        await sweep_all(store)
        [claimed] = await claim_all(store)
        assert (claimed.id, claimed.queued_at, claimed.due_at) == (row.id, clock.now(), None)

    async def test_a_job_with_run_at_waits_until_then(
        self, store: Store, clock: VirtualClock
    ) -> None:
        instant = after(clock.now(), 3_600)
        row = await enqueue_one(store, run_at=instant)
        assert (row.state, row.due_at) == (State.CREATED, instant)
        clock.jump(instant)
        await sweep_all(store)
        assert [job.id for job in await claim_all(store)] == [row.id]

    async def test_a_run_at_in_the_past_means_now(self, store: Store, clock: VirtualClock) -> None:
        row = await enqueue_one(store, run_at=after(clock.now(), -60))
        assert (row.state, row.queued_at) == (State.QUEUED, clock.now())

    async def test_a_held_job_waits_until_it_is_submitted(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await enqueue_one(store, hold=True)
        assert (row.state, row.held) == (State.CREATED, True)
        clock.advance(1_000_000)
        assert await store.due(10) == []
        assert await claim_all(store) == []
        answer = await apply_one(store, submit(row.id))
        assert (answer.status, answer.state) == (Status.APPLIED, State.QUEUED)
        [claimed] = await claim_all(store)
        assert (claimed.id, claimed.held, claimed.queued_at) == (row.id, False, clock.now())

    async def test_a_repeated_submit_returns_the_same_result(self, store: Store) -> None:
        row = await enqueue_one(store, hold=True)
        first = await apply_one(store, submit(row.id))
        assert await apply_one(store, submit(row.id)) == first
        assert len(await claim_all(store)) == 1

    async def test_only_held_jobs_can_be_submitted(self, store: Store) -> None:
        queued, delayed = await enqueue_one(store), await enqueue_one(store, delay=60.0)
        answers = await store.apply([submit(queued.id), submit(delayed.id), submit(uuid7())])
        assert [answer.status for answer in answers] == [
            Status.CONFLICT,
            Status.CONFLICT,
            Status.MISSING,
        ]
        assert await get_one(store, delayed.id) == delayed

    async def test_a_job_held_and_delayed_waits_for_both(
        self, store: Store, clock: VirtualClock
    ) -> None:
        early = await enqueue_one(store, hold=True, delay=60.0)
        answer = await apply_one(store, submit(early.id))
        assert (answer.status, answer.state) == (Status.APPLIED, State.CREATED)
        assert await claim_all(store) == []
        late = await enqueue_one(store, hold=True, delay=60.0)
        clock.advance(60)
        assert [job.id for job in await store.due(10)] == [early.id]
        assert (await apply_one(store, promote(late))).status is Status.CONFLICT
        await sweep_all(store)
        assert [job.id for job in await claim_all(store)] == [early.id]
