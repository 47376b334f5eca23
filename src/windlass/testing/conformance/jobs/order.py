"""Order: by priority, and within a priority by queue time."""

from __future__ import annotations

from uuid import UUID

import pytest

from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.outcome import Failed, Released, Succeeded, settle
from windlass.core.decisions.transition import submit
from windlass.core.job.dependency import OnParent
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import TASK, set_limit
from windlass.testing.factories import (
    apply_one,
    claim_all,
    claim_one,
    enqueue_one,
    make_failure,
    make_job,
    no_jitter,
    settle_one,
    start_one,
    sweep_all,
)

TOO_MANY = 100


def needs_fifo(store: Store) -> None:
    if not store.capabilities.fifo:
        pytest.skip("this store promises no order within a priority")


def needs_priorities(store: Store, count: int) -> None:
    classes = store.capabilities.priority_classes
    if classes is not None and classes < count:
        pytest.skip(f"this store has {classes} priority classes")


async def claim_order(store: Store, queue: str = "default") -> list[UUID]:
    """Return the ids of all queued jobs in the order of single claims."""
    taken: list[UUID] = []
    while (rows := await claim_all(store, queue, limit=1)) and len(taken) < TOO_MANY:
        taken += [row.id for row in rows]
    return taken


class TestOrder:
    async def test_first_in_first_out_over_many_calls(self, store: Store) -> None:
        needs_fifo(store)
        put = [(await enqueue_one(store)).id for _ in range(10)]
        assert await claim_order(store) == put

    async def test_first_in_first_out_within_one_bulk_enqueue(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job(payload=b"x" * (n * 3_000)) for n in range(10)]
        await store.enqueue(put)
        assert await claim_order(store) == [job.id for job in put]

    async def test_one_claim_returns_rows_in_queue_order(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job() for _ in range(20)]
        await store.enqueue(put)
        halves = [*await claim_all(store, limit=10), *await claim_all(store, limit=10)]
        assert [row.id for row in halves] == [job.id for job in put]

    async def test_the_order_follows_queueing_not_ids(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job() for _ in range(10)]
        put.reverse()
        for job in put:
            await store.enqueue([job])
        assert await claim_order(store) == [job.id for job in put]

    async def test_a_clock_step_back_does_not_change_the_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        first = await enqueue_one(store)
        clock.advance(-3_600)
        second = await enqueue_one(store)
        assert await claim_order(store) == [first.id, second.id]

    async def test_a_higher_priority_is_claimed_first(self, store: Store) -> None:
        needs_priorities(store, 3)
        low, usual, high = [
            await enqueue_one(store, priority=priority) for priority in (-10, 0, 10)
        ]
        assert await claim_order(store) == [high.id, usual.id, low.id]

    async def test_every_priority_counts_in_stores_with_all_priorities(self, store: Store) -> None:
        if store.capabilities.priority_classes is not None:
            pytest.skip("this store puts priorities into classes")
        priorities = [3, -2, 7, 0, 2_147_483_647, 1, -2_147_483_647, 4]
        put = {n: (await enqueue_one(store, priority=n)).id for n in priorities}
        assert await claim_order(store) == [put[n] for n in sorted(priorities, reverse=True)]

    async def test_within_a_priority_first_in_is_first_out(self, store: Store) -> None:
        needs_fifo(store)
        needs_priorities(store, 2)
        put = [make_job(priority=n % 2) for n in range(10)]
        await store.enqueue(put)
        expected = [*put[1::2], *put[0::2]]
        assert await claim_order(store) == [job.id for job in expected]

    async def test_one_claim_takes_the_highest_priority_first(self, store: Store) -> None:
        needs_priorities(store, 2)
        await store.enqueue([make_job(priority=n % 2) for n in range(10)])
        assert [row.priority for row in await claim_all(store, limit=5)] == [1] * 5

    async def test_a_promoted_job_joins_the_end_of_its_queue(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        delayed = await enqueue_one(store, delay=5.0)
        before = await enqueue_one(store)
        clock.advance(5)
        await sweep_all(store)
        behind = await enqueue_one(store)
        assert await claim_order(store) == [before.id, delayed.id, behind.id]

    async def test_due_lists_the_longest_due_first(self, store: Store, clock: VirtualClock) -> None:
        needs_fifo(store)
        put = {delay: (await enqueue_one(store, delay=delay)).id for delay in (3.0, 1.0, 2.0)}
        clock.advance(10)
        assert [row.id for row in await store.due(2)] == [put[1.0], put[2.0]]
        await sweep_all(store)
        assert await claim_order(store) == [put[1.0], put[2.0], put[3.0]]

    async def test_jobs_promoted_together_keep_the_order_of_their_promotion(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        rows = [await enqueue_one(store, delay=5.0) for _ in range(5)]
        clock.advance(5)
        rows.reverse()
        await store.apply([promote(row) for row in rows])
        assert await claim_order(store) == [row.id for row in rows]

    async def test_a_submitted_job_joins_the_end_of_its_queue(self, store: Store) -> None:
        needs_fifo(store)
        held = await enqueue_one(store, hold=True)
        before = await enqueue_one(store)
        await apply_one(store, submit(held.id))
        behind = await enqueue_one(store)
        assert await claim_order(store) == [before.id, held.id, behind.id]

    async def test_a_released_job_joins_the_end_of_its_queue(self, store: Store) -> None:
        needs_fifo(store)
        row = await start_one(store)
        waiting = [(await enqueue_one(store)).id for _ in range(3)]
        await settle_one(store, row, Released())
        behind = await enqueue_one(store)
        assert await claim_order(store) == [*waiting, row.id, behind.id]

    async def test_jobs_released_by_a_call_come_before_jobs_admitted_by_it(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        given_back = await start_one(store)
        await set_limit(store, TASK, concurrency=1)
        ends = await start_one(store)
        waits = await enqueue_one(store)
        both = [
            settle(ends, Succeeded(), random=no_jitter),
            settle(given_back, Released(), random=no_jitter),
        ]
        assert all(answer.applied for answer in await store.apply(both))
        assert await claim_order(store) == [given_back.id, waits.id]

    async def test_dependents_released_by_a_call_come_before_jobs_admitted_by_it(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        await set_limit(store, TASK, concurrency=1)
        ends = await start_one(store)
        waits = await enqueue_one(store)
        both = [settle(row, Succeeded(), random=no_jitter) for row in (ends, parent)]
        assert all(answer.applied for answer in await store.apply(both))
        assert await claim_order(store) == [child.id, waits.id]

    async def test_children_of_a_success_come_before_its_dependents(self, store: Store) -> None:
        needs_fifo(store)
        parent = await start_one(store)
        waits = await enqueue_one(store, depends_on=(parent.id,))
        child = make_job()
        await settle_one(store, parent, Succeeded(), children=[child])
        assert await claim_order(store) == [child.id, waits.id]

    async def test_dependents_of_a_displaced_job_come_before_the_newer_job(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        older = await enqueue_one(store, unique_key="k")
        waits = await enqueue_one(store, depends_on=(older.id,), on_parent=OnParent.RUN)
        new = [make_job(), make_job(unique_key="k", debounce=True), make_job()]
        await store.enqueue(new)
        assert await claim_order(store) == [new[0].id, waits.id, new[1].id, new[2].id]

    async def test_a_retried_job_joins_the_end_of_its_queue_when_due(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=5)))
        await settle_one(store, row, Failed(failure=make_failure()))
        waiting = await enqueue_one(store)
        clock.advance(5)
        await sweep_all(store)
        behind = await enqueue_one(store)
        assert await claim_order(store) == [waiting.id, row.id, behind.id]

    async def test_a_rescued_job_joins_the_end_of_its_queue(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        row = await start_one(store)
        waiting = await enqueue_one(store)
        clock.advance(31)
        await sweep_all(store)
        assert await claim_order(store) == [waiting.id, row.id]

    async def test_a_released_job_keeps_its_priority(self, store: Store) -> None:
        needs_priorities(store, 2)
        row = await start_one(store, priority=5)
        await enqueue_one(store)
        await settle_one(store, row, Released())
        assert (await claim_one(store)).id == row.id

    async def test_each_queue_has_its_own_order(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job(queue=f"queue-{n % 2}") for n in range(10)]
        await store.enqueue(put)
        assert await claim_order(store, "queue-1") == [job.id for job in put[1::2]]
        assert await claim_order(store, "queue-0") == [job.id for job in put[0::2]]
