"""Concurrency limits: never more jobs than allowed at once, and no capacity left unused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.clock import after
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.maintenance import sweep
from windlass.core.decisions.outcome import Failed, Released, Snoozed, Succeeded, Suspended, settle
from windlass.core.decisions.transition import SignalRequest, submit
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.versioned_record import Put
from windlass.store import Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    cancel_one,
    claim_all,
    enqueue_one,
    get_one,
    make_failure,
    make_job,
    no_jitter,
    read_events,
    settle_one,
    sweep_all,
)

QUEUE, TASK, KEYS = "queue:default", "task:test.noop", "key:test.noop"


async def set_limit(store: Store, name: str, **values: object) -> None:
    limit = Limit(**values)  # type: ignore[arg-type]
    [answer] = await store.put_records(
        [Put(kind=LIMIT, key=name, value=LimitSetting(override=limit).encode())]
    )
    assert answer.applied


async def enqueue_several(store: Store, count: int, **values: object) -> list[JobRow]:
    answers = await store.enqueue([make_job(**values) for _ in range(count)])
    rows = [answer.row for answer in answers]
    assert all(answer.accepted for answer in answers)
    return [row for row in rows if row is not None]


async def counts(store: Store, rows: list[JobRow]) -> dict[State, int]:
    found = [row.state for row in await store.get([row.id for row in rows]) if row is not None]
    return {state: found.count(state) for state in set(found)}


async def settle_all(store: Store, rows: list[JobRow]) -> None:
    answers = await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])
    assert all(answer.applied for answer in answers)


class TestConcurrency:
    async def test_no_more_jobs_are_queued_than_may_run_at_once(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await enqueue_several(store, 5)

        assert [row.state for row in rows] == [State.QUEUED] * 2 + [State.CREATED] * 3
        assert [row.gate for row in rows] == [None] * 2 + [QUEUE] * 3
        assert await store.get([row.id for row in rows]) == rows
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[:2]]
        assert await claim_all(store) == []

    async def test_a_job_admitted_at_once_is_created_and_queued_in_one_write(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        job = await enqueue_one(store)
        assert (job.state, job.queued_at, job.created_at) == (
            State.QUEUED, clock.now(), clock.now(),
        )  # fmt: skip
        statuses = [event.data["status"] for event in await read_events(store, job.id)]
        assert statuses == ["created", "queued"]

    @pytest.mark.parametrize("end", ["success", "failure", "cancel", "cancel of a waiting job"])
    async def test_the_end_of_a_job_admits_the_next(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        _, second, third = await enqueue_several(store, 3)
        [row] = await claim_all(store)
        clock.advance(1)
        if end == "success":
            await settle_all(store, [row])
        elif end == "failure":
            await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        elif end == "cancel":
            await cancel_one(store, row.id)
            assert (await get_one(store, second.id)).state is State.CREATED  # it still runs
            await settle_one(store, row, Succeeded())
        else:
            await cancel_one(store, second.id)  # a waiting job holds no permit
            assert (await get_one(store, third.id)).state is State.CREATED
            await settle_all(store, [row])
            second = third
        admitted = await get_one(store, second.id)
        assert (admitted.state, admitted.gate) == (State.QUEUED, None)
        assert admitted.queued_at == clock.now()
        assert [row.id for row in await claim_all(store)] == [second.id]
        statuses = [event.data["status"] for event in await read_events(store, second.id)]
        assert statuses == ["created", "queued", "running"]

    async def test_a_canceled_queued_job_admits_the_next(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await enqueue_several(store, 2)
        await cancel_one(store, first.id)
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_a_rescue_frees_the_permit_of_a_dead_worker(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await enqueue_several(store, 2)
        await claim_all(store, lease=10)
        clock.advance(11)
        assert await claim_all(store) == []
        await sweep_all(store)
        # It needs a new permit, and is queued behind the job that waited.
        assert [row.id for row in await claim_all(store)] == [second.id]
        again = await get_one(store, first.id)
        assert (again.state, again.gate, again.crash_count) == (State.RETRYING, QUEUE, 1)

    @pytest.mark.parametrize("outcome", [Released(), Snoozed(delay=5)])
    async def test_an_ended_attempt_releases_its_permit_and_waits_for_another(
        self, store: Store, clock: VirtualClock, outcome: Released | Snoozed
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await enqueue_several(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, outcome)
        [other] = await claim_all(store)
        assert other.id == second.id
        clock.advance(6)
        await sweep_all(store)
        assert await claim_all(store) == []
        await settle_all(store, [other])
        [again] = await claim_all(store)
        assert (again.id, again.attempt) == (first.id, 2)

    async def test_outcomes_settled_in_one_call_admit_as_many_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await enqueue_several(store, 9)
        ran = []
        for _ in range(3):
            claimed = await claim_all(store)
            assert len(claimed) == 3
            ran += [row.id for row in claimed]
            await settle_all(store, claimed)
        assert ran == [row.id for row in rows]

    async def test_outcomes_settled_by_many_handles_leave_no_capacity_unused(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=4)
        rows = await enqueue_several(store, 24)
        handles = [store.twin() for _ in range(4)]

        async def work(handle: Store) -> None:
            while claimed := await claim_all(handle, limit=1):
                assert (await counts(store, rows)).get(State.RUNNING, 0) <= 4
                await settle_all(handle, claimed)

        try:
            while (await counts(store, rows)).get(State.SUCCEEDED, 0) < len(rows):
                await asyncio.gather(*(work(handle) for handle in handles))
                done = (await counts(store, rows)).get(State.SUCCEEDED, 0)
                queued = (await counts(store, rows)).get(State.QUEUED, 0)
                assert queued == min(4, len(rows) - done)
        finally:
            for handle in handles:
                await handle.close()

    async def test_each_key_has_its_own_limit(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        ada = await enqueue_several(store, 3, limit_key="ada")
        bob = await enqueue_several(store, 2, limit_key="bob")
        none = await enqueue_several(store, 2)
        claimed = await claim_all(store)
        assert {row.id for row in claimed} == {ada[0].id, bob[0].id, *(row.id for row in none)}
        await settle_all(store, [row for row in claimed if row.id == ada[0].id])
        assert [row.id for row in await claim_all(store)] == [ada[1].id]

    async def test_a_job_needs_a_permit_of_every_gate(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=2)
        await set_limit(store, TASK, concurrency=3)
        await set_limit(store, QUEUE, concurrency=4)
        ada = await enqueue_several(store, 4, limit_key="ada")
        bob = await enqueue_several(store, 4, limit_key="bob")
        other = await enqueue_several(store, 4, task="test.other")

        assert [row.gate for row in ada] == [None, None, "key:test.noop\x1fada",
                                             "key:test.noop\x1fada"]  # fmt: skip
        assert [row.gate for row in bob] == [None, TASK, "key:test.noop\x1fbob",
                                             "key:test.noop\x1fbob"]  # fmt: skip
        assert [row.gate for row in other] == [None, QUEUE, QUEUE, QUEUE]
        claimed = await claim_all(store)
        assert {row.id for row in claimed} == {ada[0].id, ada[1].id, bob[0].id, other[0].id}
        # The first job at each gate gets its permit, and no job overtakes it.
        await settle_all(store, [row for row in claimed if row.id == ada[0].id])
        waiting = [row for row in await store.get([ada[2].id, bob[1].id]) if row is not None]
        assert sorted(row.gate or "queued" for row in waiting) in (
            ["queued", TASK], [QUEUE, TASK],
        )  # fmt: skip
        running = [row for row in claimed if row.id != ada[0].id]
        while running := [*running, *await claim_all(store)]:
            tasks = [row.task for row in running]
            assert len(tasks) <= 4
            assert tasks.count("test.noop") <= 3
            await settle_all(store, running[:1])
            running = running[1:]
        assert await counts(store, [*ada, *bob, *other]) == {State.SUCCEEDED: 12}

    async def test_a_job_keeps_its_position_at_the_next_gate(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        _, second = await enqueue_several(store, 2)
        [other] = await enqueue_several(store, 1, task="test.other")
        assert (second.gate, other.gate) == (TASK, QUEUE)
        await settle_all(store, await claim_all(store))
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_delayed_jobs_need_permits_when_they_are_due(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        held = await enqueue_one(store, hold=True)
        delayed = await enqueue_one(store, delay=5)
        first = await enqueue_one(store)
        assert (held.gate, delayed.gate) == (None, None)
        child = await enqueue_one(store, depends_on=(first.id,))
        await apply_one(store, submit(held.id))
        clock.advance(6)
        await sweep_all(store)
        order = []
        while claimed := await claim_all(store):
            [row] = claimed
            order.append(row.id)
            await settle_all(store, claimed)
        assert order == [first.id, held.id, delayed.id, child.id]

    async def test_a_repeated_submit_at_a_gate_returns_the_same_result(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first = await enqueue_one(store)
        held = await enqueue_one(store, hold=True)
        assert (await apply_one(store, submit(held.id))).applied
        assert (await apply_one(store, submit(held.id))).applied
        await cancel_one(store, first.id)
        assert (await get_one(store, held.id)).state is State.QUEUED
        assert (await apply_one(store, submit(held.id))).applied

    async def test_a_repeated_sweep_returns_the_same_result(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        _, second = await enqueue_several(store, 2)
        await claim_all(store)
        clock.advance(10)
        [head] = await store.due(10)
        assert head.id == second.id
        for _ in range(2):  # another sweeper read it, too, or the first response was lost
            assert (await apply_one(store, sweep(head, random=no_jitter))).applied
            assert (await get_one(store, second.id)).state is State.QUEUED

    async def test_a_suspended_job_holds_no_permit_and_needs_one_when_woken(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await enqueue_several(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, Suspended(signals=0))
        [other] = await claim_all(store)
        assert other.id == second.id
        for name in ("go", "again"):
            await store.apply([SignalRequest(job_id=first.id, name=name)])
            woken = await get_one(store, first.id)
            assert (woken.state, woken.gate) == (State.RETRYING, QUEUE)
        await settle_all(store, [other])
        assert [row.id for row in await claim_all(store)] == [first.id]

    async def test_children_of_a_success_need_permits(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=2)
        await enqueue_several(store, 1)
        [row] = await claim_all(store)
        children = [make_job() for _ in range(3)]
        await settle_one(store, row, Succeeded(), children=children)
        claimed = await claim_all(store)
        assert [row.id for row in claimed] == [child.id for child in children[:2]]
        assert (await get_one(store, children[2].id)).gate == TASK

    async def test_a_job_that_expires_at_a_gate_fails_and_blocks_no_other(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 1)
        late = await enqueue_one(store, expires_in=5)
        third = await enqueue_one(store)
        [row] = await claim_all(store)
        clock.advance(6)
        await settle_all(store, [row])
        assert [row.id for row in await claim_all(store)] == [third.id]
        await sweep_all(store)
        expired = await get_one(store, late.id)
        assert (expired.state, expired.gate, expired.position) == (State.FAILED, None, None)

    async def test_a_higher_priority_is_admitted_first(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        [first] = await enqueue_several(store, 1)
        low = await enqueue_one(store, priority=-1)
        high = await enqueue_one(store, priority=5)
        order = []
        while claimed := await claim_all(store):
            order.append(claimed[0].id)
            await settle_all(store, claimed)
        assert order == [first.id, high.id, low.id]

    async def test_a_repeated_claim_under_a_limit_returns_the_same_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        await enqueue_several(store, 4)
        claim = Claim(token=uuid7(), worker="w", queues=[("default", 10)])
        first = await store.claim(claim)
        assert len(first) == 2
        assert await store.claim(claim) == first

    async def test_a_job_waiting_at_a_gate_is_counted_and_found_as_created(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 2)
        await enqueue_several(store, 1, expires_in=60)
        await enqueue_several(store, 1, delay=60)
        stats = (await store.insights.stats())["default"]
        assert stats.counts == {State.QUEUED: 1, State.CREATED: 3}
        for row in await claim_all(store):
            await settle_one(store, row, Released())
        stats = (await store.insights.stats())["default"]
        assert stats.counts == {State.QUEUED: 1, State.CREATED: 2, State.RETRYING: 1}

    async def test_pruning_finished_jobs_keeps_the_limit_correct(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await enqueue_several(store, 5)
        await settle_all(store, await claim_all(store))
        clock.advance(100)
        pruned = await store.prune(Retention(succeeded=1), 100)
        assert pruned.jobs == 2
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:4]]

    async def test_an_invalid_job_under_a_limit_is_refused(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 1)
        [answer] = await store.enqueue([make_job(delay=-1.0)])
        assert answer.status is EnqueueStatus.REFUSED
        await enqueue_several(store, 1)

    async def test_instants_and_log_stay_in_order(self, store: Store, clock: VirtualClock) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, _ = await enqueue_several(store, 2)
        [row] = await claim_all(store)
        clock.advance(3)
        await settle_one(store, row, Failed(failure=make_failure()))
        clock.advance(30)
        await sweep_all(store)
        [other] = await claim_all(store)
        clock.advance(1)
        await settle_all(store, [other])
        [again] = await claim_all(store)
        assert again.queued_at == clock.now()
        assert again.due_at is None
        statuses = [event.data["status"] for event in await read_events(store, first.id)]
        assert statuses == ["created", "queued", "running", "retrying", "queued", "running"]
        assert after(first.created_at, 34) == clock.now()
        assert replace(again, payload=b"") == replace(await get_one(store, first.id), payload=b"")
