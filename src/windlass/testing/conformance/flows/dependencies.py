"""Dependencies: a job runs after all its parents; the end of the last one queues it."""

from __future__ import annotations

import asyncio
from uuid import UUID

from windlass.core.clock import after
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Failed, Succeeded, settle
from windlass.core.decisions.transition import Status, submit
from windlass.core.ids import uuid7
from windlass.core.job.dependency import Edges, OnParent
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.reads.find import enqueue_many
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
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

BROKEN = Failed(failure=make_failure(terminal=True))
AGAIN = Failed(failure=make_failure())


def child_of(*parents: NewJob | JobRow, **values: object) -> NewJob:
    return make_job(depends_on=tuple(parent.id for parent in parents), **values)


async def store_all(store: Store, *jobs: NewJob) -> None:
    answers = await store.enqueue(jobs)
    assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * len(jobs)


async def states(store: Store, *jobs: NewJob | JobRow) -> list[State]:
    return [row.state for row in await store.get([job.id for job in jobs]) if row is not None]


class TestDependencies:
    async def test_a_child_is_queued_by_the_success_of_its_parent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        assert (child.state, child.waiting_for, child.queued_at) == (State.CREATED, 1, None)
        assert await get_one(store, child.id) == child
        assert await claim_all(store) == []

        clock.advance(5)
        assert (await settle_one(store, parent, Succeeded())).applied

        row = await get_one(store, child.id)
        assert (row.state, row.waiting_for, row.queued_at) == (State.QUEUED, 0, clock.now())
        assert [job.id for job in await claim_all(store)] == [child.id]
        statuses = [event.data["status"] for event in await read_events(store, child.id)]
        assert statuses == ["created", "queued", "running"]

    async def test_a_child_waits_for_all_of_its_parents(self, store: Store) -> None:
        parents = [make_job(queue="parents") for _ in range(3)]
        await store_all(store, *parents)
        child = await enqueue_one(store, depends_on=tuple(parent.id for parent in parents))
        first, second, third = await claim_all(store, "parents")

        await settle_one(store, first, Succeeded())
        assert (await get_one(store, child.id)).waiting_for == 2
        await store.apply([settle(row, Succeeded(), random=no_jitter) for row in (second, third)])

        assert [job.id for job in await claim_all(store)] == [child.id]

    async def test_parents_that_end_together_queue_their_child_once(self, store: Store) -> None:
        parents = [make_job(queue="parents") for _ in range(8)]
        await store_all(store, *parents)
        child = await enqueue_one(store, depends_on=tuple(parent.id for parent in parents))
        running = await claim_all(store, "parents")
        handles = [store.twin() for _ in range(4)]
        try:
            await asyncio.gather(
                *(
                    handles[number % 4].apply([settle(row, Succeeded(), random=no_jitter)])
                    for number, row in enumerate(running)
                )
            )
        finally:
            for handle in handles:
                await handle.close()
        row = await get_one(store, child.id)
        assert (row.state, row.waiting_for, row.seq) == (State.QUEUED, 0, 2)
        assert [job.id for job in await claim_all(store)] == [child.id]

    async def test_a_child_still_waits_for_a_parent_that_is_retried(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        await settle_one(store, parent, AGAIN)
        clock.advance(60)
        await sweep_all(store)
        assert (await get_one(store, child.id)).waiting_for == 1
        again = await claim_one(store)
        assert again.id == parent.id
        await settle_one(store, again, Succeeded())
        assert (await claim_one(store)).id == child.id

    async def test_a_stale_settle_releases_no_child(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stale = await start_one(store)
        child = await enqueue_one(store, depends_on=(stale.id,))
        clock.advance(31)
        await sweep_all(store)
        holder = await claim_one(store)
        assert (await settle_one(store, stale, Succeeded())).status is Status.STALE
        assert (await get_one(store, child.id)).waiting_for == 1
        await settle_one(store, holder, Succeeded())
        assert (await settle_one(store, holder, Succeeded())).applied
        row = await get_one(store, child.id)
        assert (row.state, row.waiting_for, row.seq) == (State.QUEUED, 0, 2)

    async def test_one_call_may_hold_parents_and_children(self, store: Store) -> None:
        top = make_job()
        left, right = child_of(top), child_of(top)
        bottom = child_of(left, right)
        await store_all(store, top, left, right, bottom)
        order: list[UUID] = []
        while rows := await claim_all(store):
            order += [row.id for row in rows]
            await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])
        assert order[0] == top.id
        assert sorted(order[1:3]) == sorted([left.id, right.id])
        assert order[3:] == [bottom.id]

    async def test_children_of_a_success_may_depend_on_each_other(self, store: Store) -> None:
        parent = await start_one(store)
        first = make_job()
        second = child_of(first)
        await settle_one(store, parent, Succeeded(), children=[first, second])
        assert [row.id for row in await claim_all(store)] == [first.id]
        assert (await get_one(store, second.id)).waiting_for == 1

    # -- parents that ended before

    async def test_a_job_may_depend_on_a_job_released_earlier_in_the_same_call(
        self, store: Store
    ) -> None:
        first = await enqueue_one(store, unique_key="k")
        second = await enqueue_one(store, depends_on=(first.id,), on_parent=OnParent.RUN)
        newer = make_job(unique_key="k", debounce=True, queue="other")
        third = child_of(second)
        await store_all(store, newer, third)
        assert (await get_one(store, third.id)).waiting_for == 1
        await settle_one(store, await claim_one(store), Succeeded())
        assert [job.id for job in await claim_all(store)] == [third.id]

    async def test_a_job_does_not_wait_for_a_succeeded_parent(self, store: Store) -> None:
        parent = await start_one(store)
        await settle_one(store, parent, Succeeded())
        child = await enqueue_one(store, depends_on=(parent.id,))
        assert (child.state, child.waiting_for) == (State.QUEUED, 0)
        assert (await claim_one(store)).id == child.id
        [edges] = await store.edges([child.id])
        assert edges.parents == (parent.id,)

    async def test_a_child_with_a_delay_waits_for_it(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,), delay=60)
        await settle_one(store, parent, Succeeded())
        row = await get_one(store, child.id)
        assert (row.state, row.due_at) == (State.CREATED, after(clock.now(), 60))
        clock.advance(60)
        await sweep_all(store)
        assert (await claim_one(store)).id == child.id

    async def test_a_due_child_still_waits_for_its_parent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,), delay=10)
        clock.advance(20)
        assert [row.id for row in await store.due(10)] == []
        await settle_one(store, parent, Succeeded())
        assert (await claim_one(store)).id == child.id

    async def test_a_held_child_waits_to_be_submitted(self, store: Store) -> None:
        parent = await start_one(store)
        first = await enqueue_one(store, depends_on=(parent.id,), hold=True)
        second = await enqueue_one(store, depends_on=(parent.id,), hold=True)
        assert (await apply_one(store, submit(first.id))).applied
        assert (await get_one(store, first.id)).state is State.CREATED
        await settle_one(store, parent, Succeeded())
        assert await states(store, first, second) == [State.QUEUED, State.CREATED]
        await apply_one(store, submit(second.id))
        assert (await get_one(store, second.id)).state is State.QUEUED

    async def test_a_child_that_expired_meanwhile_does_not_run(
        self, store: Store, clock: VirtualClock
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,), expires_in=10)
        clock.advance(11)
        await settle_one(store, parent, Succeeded())
        assert await claim_all(store) == []
        await sweep_all(store)
        assert (await get_one(store, child.id)).state is State.FAILED

    async def test_a_waiting_child_can_be_canceled(self, store: Store) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        assert (await cancel_one(store, child.id)).state is State.CANCELED
        await settle_one(store, parent, Succeeded())
        row = await get_one(store, child.id)
        assert (row.state, row.waiting_for) == (State.CANCELED, 0)

    # -- refused jobs

    async def test_an_unknown_or_foreign_parent_is_refused(self, store: Store) -> None:
        foreign_parent = await enqueue_one(store, owner="them")
        [unknown, foreign, fine] = await store.enqueue(
            [
                make_job(owner="us", depends_on=(uuid7(),)),
                make_job(owner="us", depends_on=(foreign_parent.id,)),
                make_job(owner="us"),
            ]
        )
        assert unknown.status is foreign.status is EnqueueStatus.REFUSED
        assert fine.status is EnqueueStatus.CREATED
        assert not (await get_one(store, foreign_parent.id)).awaited

    async def test_a_cycle_is_refused(self, store: Store) -> None:
        first, second, own = uuid7(), uuid7(), uuid7()
        answers = await store.enqueue(
            [
                make_job(id=own, depends_on=(own,)),
                make_job(id=first, depends_on=(second,)),
                make_job(id=second, depends_on=(first,)),
            ]
        )
        assert {answer.status for answer in answers} == {EnqueueStatus.REFUSED}
        assert await store.get([own, first, second]) == [None, None, None]

    async def test_an_atomic_enqueue_stores_all_jobs_or_none(self, store: Store) -> None:
        there = await enqueue_one(store)
        good = make_job()
        bad = child_of(good, make_job())
        answers = await store.enqueue([good, bad], atomic=True)
        assert [answer.status for answer in answers] == [EnqueueStatus.REFUSED] * 2
        assert await store.get([good.id, bad.id]) == [None, None]

        fine = child_of(good, there)
        for _ in range(2):  # a repeat returns the same result
            answers = await store.enqueue([good, fine], atomic=True)
            assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * 2
        assert (await get_one(store, fine.id)).waiting_for == 2

    # -- reads

    async def test_edges_are_readable_from_parent_and_child(self, store: Store) -> None:
        first, second = await enqueue_one(store), await enqueue_one(store)
        child = await enqueue_one(store, depends_on=(second.id, first.id))
        other = await enqueue_one(store, depends_on=(first.id,))
        of_first, of_child, of_unknown = await store.edges([first.id, child.id, uuid7()])
        assert (of_first.parents, of_first.children) == ((), (child.id, other.id))
        assert (of_child.parents, of_child.children) == ((second.id, first.id), ())
        assert (of_unknown.parents, of_unknown.children) == ((), ())

    async def test_edges_can_be_limited_to_the_first(self, store: Store) -> None:
        parents = await enqueue_many(store, 4)
        child = await enqueue_one(store, depends_on=tuple(parents))
        children = await enqueue_many(store, 4, depends_on=(child.id,))

        for most in (0, 1, 3, 4, 9, None):
            [edges] = await store.edges([child.id], most)
            assert edges == Edges(tuple(parents[:most]), tuple(children[:most])), most

    async def test_edges_stay_until_the_child_is_deleted(self, store: Store) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        await settle_one(store, parent, Succeeded())
        await settle_one(store, await claim_one(store), Succeeded())
        assert (await store.edges([child.id]))[0].parents == (parent.id,)
        await store.delete([parent.id])
        assert (await store.edges([child.id]))[0].parents == (parent.id,)
        await store.delete([child.id])
        assert (await store.edges([child.id, parent.id]))[0].parents == ()
        assert await store.prune(Retention(), 10) is not None

    async def test_the_jobs_of_a_flow_can_be_found(self, store: Store) -> None:
        flow_id = uuid7()
        jobs = [make_job(flow_id=flow_id) for _ in range(3)]
        await store_all(store, make_job(), *jobs, make_job(flow_id=uuid7()))
        page = await store.find(JobQuery(flow_id=flow_id))
        assert [row.id for row in page.rows] == [job.id for job in reversed(jobs)]
