"""Order: the highest priority first, and within a priority whoever has queued longest."""

from __future__ import annotations

from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Failed, Released, Succeeded, promote, settle, submit
from windlass.core.decisions.retry import Fixed, Policy
from windlass.core.job.dependency import OnParent
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import TASK, set_limit
from windlass.testing.factories import (
    apply_one,
    claim_all,
    claim_one,
    enqueue_one,
    even,
    make_failure,
    make_job,
    settle_one,
    start_one,
    sweep_all,
)

TOO_MANY = 100


def needs_fifo(store: Store) -> None:
    if not store.capabilities.fifo:
        pytest.skip("this store promises no order within a priority")


def needs_priorities(store: Store, count: int) -> None:
    told_apart = store.capabilities.priority_classes
    if told_apart is not None and told_apart < count:
        pytest.skip(f"this store tells {told_apart} priorities apart")


async def one_by_one(store: Store, queue: str = "default") -> list[UUID]:
    """All that is in line, in the order of single claims."""
    taken: list[UUID] = []
    while (rows := await claim_all(store, queue, limit=1)) and len(taken) < TOO_MANY:
        taken += [row.id for row in rows]
    return taken


class TestOrder:
    async def test_first_in_first_out_over_many_calls(self, store: Store) -> None:
        needs_fifo(store)
        put = [(await enqueue_one(store)).id for _ in range(10)]
        assert await one_by_one(store) == put

    async def test_first_in_first_out_within_one_bulk_enqueue(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job(payload=b"x" * (n * 3_000)) for n in range(10)]
        await store.enqueue(put)
        assert await one_by_one(store) == [job.id for job in put]

    async def test_one_claim_answers_in_the_order_of_the_line(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job() for _ in range(20)]
        await store.enqueue(put)
        halves = [*await claim_all(store, limit=10), *await claim_all(store, limit=10)]
        assert [row.id for row in halves] == [job.id for job in put]

    async def test_the_order_is_that_of_queueing_not_that_of_ids(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job() for _ in range(10)]
        put.reverse()
        for job in put:
            await store.enqueue([job])
        assert await one_by_one(store) == [job.id for job in put]

    async def test_a_clock_that_slips_back_does_not_change_the_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        first = await enqueue_one(store)
        clock.advance(-3_600)
        second = await enqueue_one(store)
        assert await one_by_one(store) == [first.id, second.id]

    async def test_a_higher_priority_goes_first(self, store: Store) -> None:
        needs_priorities(store, 3)
        low, usual, high = [
            await enqueue_one(store, priority=priority) for priority in (-10, 0, 10)
        ]
        assert await one_by_one(store) == [high.id, usual.id, low.id]

    async def test_every_priority_counts_where_a_store_tells_all_apart(self, store: Store) -> None:
        if store.capabilities.priority_classes is not None:
            pytest.skip("this store puts priorities into classes")
        priorities = [3, -2, 7, 0, 2_147_483_647, 1, -2_147_483_647, 4]
        put = {n: (await enqueue_one(store, priority=n)).id for n in priorities}
        assert await one_by_one(store) == [put[n] for n in sorted(priorities, reverse=True)]

    async def test_within_a_priority_first_in_is_first_out(self, store: Store) -> None:
        needs_fifo(store)
        needs_priorities(store, 2)
        put = [make_job(priority=n % 2) for n in range(10)]
        await store.enqueue(put)
        expected = [*put[1::2], *put[0::2]]
        assert await one_by_one(store) == [job.id for job in expected]

    async def test_one_claim_takes_the_highest_priority_first(self, store: Store) -> None:
        needs_priorities(store, 2)
        await store.enqueue([make_job(priority=n % 2) for n in range(10)])
        assert [row.priority for row in await claim_all(store, limit=5)] == [1] * 5

    async def test_a_promoted_job_joins_the_end_of_the_line(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        delayed = await enqueue_one(store, delay=5.0)
        before = await enqueue_one(store)
        clock.advance(5)
        await sweep_all(store)
        behind = await enqueue_one(store)
        assert await one_by_one(store) == [before.id, delayed.id, behind.id]

    async def test_due_names_the_longest_due_first(self, store: Store, clock: VirtualClock) -> None:
        needs_fifo(store)
        put = {delay: (await enqueue_one(store, delay=delay)).id for delay in (3.0, 1.0, 2.0)}
        clock.advance(10)
        assert [row.id for row in await store.due(2)] == [put[1.0], put[2.0]]
        await sweep_all(store)
        assert await one_by_one(store) == [put[1.0], put[2.0], put[3.0]]

    async def test_jobs_promoted_together_keep_the_order_of_their_promotion(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        rows = [await enqueue_one(store, delay=5.0) for _ in range(5)]
        clock.advance(5)
        rows.reverse()
        await store.apply([promote(row) for row in rows])
        assert await one_by_one(store) == [row.id for row in rows]

    async def test_a_submitted_job_joins_the_end_of_the_line(self, store: Store) -> None:
        needs_fifo(store)
        held = await enqueue_one(store, hold=True)
        before = await enqueue_one(store)
        await apply_one(store, submit(held.id))
        behind = await enqueue_one(store)
        assert await one_by_one(store) == [before.id, held.id, behind.id]

    async def test_a_released_job_joins_the_end_of_the_line(self, store: Store) -> None:
        needs_fifo(store)
        row = await start_one(store)
        waiting = [(await enqueue_one(store)).id for _ in range(3)]
        await settle_one(store, row, Released())
        behind = await enqueue_one(store)
        assert await one_by_one(store) == [*waiting, row.id, behind.id]

    async def test_what_a_call_gives_back_stands_before_whom_its_ends_let_in(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        given_back = await start_one(store)
        await set_limit(store, TASK, concurrency=1)
        ends = await start_one(store)
        waits = await enqueue_one(store)
        both = [settle(ends, Succeeded(), random=even), settle(given_back, Released(), random=even)]
        assert all(answer.applied for answer in await store.apply(both))
        assert await one_by_one(store) == [given_back.id, waits.id]

    async def test_who_waits_for_the_ends_of_a_call_stands_before_whom_they_let_in(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        await set_limit(store, TASK, concurrency=1)
        ends = await start_one(store)
        waits = await enqueue_one(store)
        both = [settle(row, Succeeded(), random=even) for row in (ends, parent)]
        assert all(answer.applied for answer in await store.apply(both))
        assert await one_by_one(store) == [child.id, waits.id]

    async def test_children_of_a_success_stand_before_whoever_waited_for_it(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        parent = await start_one(store)
        waits = await enqueue_one(store, depends_on=(parent.id,))
        child = make_job()
        await settle_one(store, parent, Succeeded(), children=[child])
        assert await one_by_one(store) == [child.id, waits.id]

    async def test_whom_a_job_that_gives_way_sets_free_stands_before_the_newer(
        self, store: Store
    ) -> None:
        needs_fifo(store)
        older = await enqueue_one(store, unique_key="k")
        waits = await enqueue_one(store, depends_on=(older.id,), on_parent=OnParent.RUN)
        new = [make_job(), make_job(unique_key="k", debounce=True), make_job()]
        await store.enqueue(new)
        assert await one_by_one(store) == [new[0].id, waits.id, new[1].id, new[2].id]

    async def test_a_retried_job_joins_the_end_of_the_line_when_its_time_comes(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=5)))
        await settle_one(store, row, Failed(failure=make_failure()))
        waiting = await enqueue_one(store)
        clock.advance(5)
        await sweep_all(store)
        behind = await enqueue_one(store)
        assert await one_by_one(store) == [waiting.id, row.id, behind.id]

    async def test_a_rescued_job_joins_the_end_of_the_line(
        self, store: Store, clock: VirtualClock
    ) -> None:
        needs_fifo(store)
        row = await start_one(store)
        waiting = await enqueue_one(store)
        clock.advance(31)
        await sweep_all(store)
        assert await one_by_one(store) == [waiting.id, row.id]

    async def test_a_released_job_keeps_its_priority(self, store: Store) -> None:
        needs_priorities(store, 2)
        row = await start_one(store, priority=5)
        await enqueue_one(store)
        await settle_one(store, row, Released())
        assert (await claim_one(store)).id == row.id

    async def test_queues_are_lines_of_their_own(self, store: Store) -> None:
        needs_fifo(store)
        put = [make_job(queue=f"queue-{n % 2}") for n in range(10)]
        await store.enqueue(put)
        assert await one_by_one(store, "queue-1") == [job.id for job in put[1::2]]
        assert await one_by_one(store, "queue-0") == [job.id for job in put[0::2]]
