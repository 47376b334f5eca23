"""Limits: never more at once, or in a period, than they say; and never less than they could."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from windlass.core.admission.gates import LIMIT, Limit, Setting
from windlass.core.clock import after
from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import (
    Failed,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    settle,
    submit,
    sweep,
)
from windlass.core.decisions.transition import Signal
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.records import Put
from windlass.store import Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    cancel_one,
    claim_all,
    enqueue_one,
    even,
    get_one,
    make_failure,
    make_job,
    read_events,
    settle_one,
    sweep_all,
)

QUEUE, TASK, KEYS = "queue:default", "task:test.noop", "key:test.noop"


async def set_limit(store: Store, name: str, **values: object) -> None:
    limit = Limit(**values)  # type: ignore[arg-type]
    [answer] = await store.put_records(
        [Put(kind=LIMIT, key=name, value=Setting(given=limit).encode())]
    )
    assert answer.applied


async def put_in(store: Store, count: int, **values: object) -> list[JobRow]:
    answers = await store.enqueue([make_job(**values) for _ in range(count)])
    rows = [answer.row for answer in answers]
    assert all(answer.accepted for answer in answers)
    return [row for row in rows if row is not None]


async def counts(store: Store, rows: list[JobRow]) -> dict[State, int]:
    found = [row.state for row in await store.get([row.id for row in rows]) if row is not None]
    return {state: found.count(state) for state in set(found)}


async def end_all(store: Store, rows: list[JobRow]) -> None:
    answers = await store.apply([settle(row, Succeeded(), random=even) for row in rows])
    assert all(answer.applied for answer in answers)


class TestLimiting:
    async def test_no_more_are_in_line_than_may_run_at_once(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await put_in(store, 5)

        assert [row.state for row in rows] == [State.QUEUED] * 2 + [State.CREATED] * 3
        assert [row.gate for row in rows] == [None] * 2 + [QUEUE] * 3
        assert await store.get([row.id for row in rows]) == rows
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[:2]]
        assert await claim_all(store) == []

    async def test_one_that_is_let_in_at_once_was_created_and_queued_in_one_write(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        job = await enqueue_one(store)
        assert (job.state, job.queued_at, job.created_at) == (
            State.QUEUED, clock.now(), clock.now(),
        )  # fmt: skip
        said = [event.data["status"] for event in await read_events(store, job.id)]
        assert said == ["created", "queued"]

    @pytest.mark.parametrize("end", ["success", "failure", "cancel", "abort"])
    async def test_an_end_lets_the_next_one_in(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        _, second, third = await put_in(store, 3)
        [row] = await claim_all(store)
        clock.advance(1)
        if end == "success":
            await end_all(store, [row])
        elif end == "failure":
            await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        elif end == "cancel":
            await cancel_one(store, row.id)
            assert (await get_one(store, second.id)).state is State.CREATED  # it still runs
            await settle_one(store, row, Succeeded())
        else:
            await cancel_one(store, second.id)  # who waits gives nothing free
            assert (await get_one(store, third.id)).state is State.CREATED
            await end_all(store, [row])
            second = third
        let_in = await get_one(store, second.id)
        assert (let_in.state, let_in.gate, let_in.queued_at) == (State.QUEUED, None, clock.now())
        assert [row.id for row in await claim_all(store)] == [second.id]
        said = [event.data["status"] for event in await read_events(store, second.id)]
        assert said == ["created", "queued", "running"]

    async def test_a_job_in_line_that_is_canceled_lets_the_next_one_in(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await put_in(store, 2)
        await cancel_one(store, first.id)
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_the_slot_of_a_dead_worker_comes_back(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await put_in(store, 2)
        await claim_all(store, lease=10)
        clock.advance(11)
        assert await claim_all(store) == []
        await sweep_all(store)
        # It has to pass again, and stands behind the one that waited.
        assert [row.id for row in await claim_all(store)] == [second.id]
        again = await get_one(store, first.id)
        assert (again.state, again.gate, again.crash_count) == (State.RETRYING, QUEUE, 1)

    @pytest.mark.parametrize("outcome", [Released(), Snoozed(delay=5)])
    async def test_an_attempt_that_is_over_gives_its_slot_away_and_waits_for_another(
        self, store: Store, clock: VirtualClock, outcome: Released | Snoozed
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await put_in(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, outcome)
        [other] = await claim_all(store)
        assert other.id == second.id
        clock.advance(6)
        await sweep_all(store)
        assert await claim_all(store) == []
        await end_all(store, [other])
        [again] = await claim_all(store)
        assert (again.id, again.attempt) == (first.id, 2)

    async def test_ends_in_one_call_let_in_as_many(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await put_in(store, 9)
        ran = []
        for _ in range(3):
            claimed = await claim_all(store)
            assert len(claimed) == 3
            ran += [row.id for row in claimed]
            await end_all(store, claimed)
        assert ran == [row.id for row in rows]

    async def test_ends_of_many_handles_leave_no_slot_empty(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=4)
        rows = await put_in(store, 24)
        handles = [store.twin() for _ in range(4)]

        async def work(handle: Store) -> None:
            while claimed := await claim_all(handle, limit=1):
                assert (await counts(store, rows)).get(State.RUNNING, 0) <= 4
                await end_all(handle, claimed)

        try:
            while (await counts(store, rows)).get(State.SUCCEEDED, 0) < len(rows):
                await asyncio.gather(*(work(handle) for handle in handles))
                done = (await counts(store, rows)).get(State.SUCCEEDED, 0)
                in_line = (await counts(store, rows)).get(State.QUEUED, 0)
                assert in_line == min(4, len(rows) - done)
        finally:
            for handle in handles:
                await handle.close()

    async def test_each_key_has_slots_of_its_own(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        ada = await put_in(store, 3, limit_key="ada")
        bob = await put_in(store, 2, limit_key="bob")
        none = await put_in(store, 2)
        claimed = await claim_all(store)
        assert {row.id for row in claimed} == {ada[0].id, bob[0].id, *(row.id for row in none)}
        await end_all(store, [row for row in claimed if row.id == ada[0].id])
        assert [row.id for row in await claim_all(store)] == [ada[1].id]

    async def test_a_job_has_to_pass_all_of_its_gates(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=2)
        await set_limit(store, TASK, concurrency=3)
        await set_limit(store, QUEUE, concurrency=4)
        ada = await put_in(store, 4, limit_key="ada")
        bob = await put_in(store, 4, limit_key="bob")
        other = await put_in(store, 4, task="test.other")

        assert [row.gate for row in ada] == [None, None, "key:test.noop\x1fada",
                                             "key:test.noop\x1fada"]  # fmt: skip
        assert [row.gate for row in bob] == [None, TASK, "key:test.noop\x1fbob",
                                             "key:test.noop\x1fbob"]  # fmt: skip
        assert [row.gate for row in other] == [None, QUEUE, QUEUE, QUEUE]
        claimed = await claim_all(store)
        assert {row.id for row in claimed} == {ada[0].id, ada[1].id, bob[0].id, other[0].id}
        # Its places go to whoever stands first at each gate, and nobody passes beside it.
        await end_all(store, [row for row in claimed if row.id == ada[0].id])
        standing = [row for row in await store.get([ada[2].id, bob[1].id]) if row is not None]
        assert sorted(row.gate or "in line" for row in standing) in (
            ["in line", TASK], [QUEUE, TASK],
        )  # fmt: skip
        running = [row for row in claimed if row.id != ada[0].id]
        while running := [*running, *await claim_all(store)]:
            tasks = [row.task for row in running]
            assert len(tasks) <= 4
            assert tasks.count("test.noop") <= 3
            await end_all(store, running[:1])
            running = running[1:]
        assert await counts(store, [*ada, *bob, *other]) == {State.SUCCEEDED: 12}

    async def test_who_waited_at_one_gate_is_not_set_back_at_the_next(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        _, second = await put_in(store, 2)
        [other] = await put_in(store, 1, task="test.other")
        assert (second.gate, other.gate) == (TASK, QUEUE)
        await end_all(store, await claim_all(store))
        assert [row.id for row in await claim_all(store)] == [second.id]

    async def test_jobs_whose_time_comes_later_pass_then(
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
            await end_all(store, claimed)
        assert order == [first.id, held.id, delayed.id, child.id]

    async def test_a_submit_that_is_repeated_is_answered_alike(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first = await enqueue_one(store)
        held = await enqueue_one(store, hold=True)
        assert (await apply_one(store, submit(held.id))).applied
        assert (await apply_one(store, submit(held.id))).applied
        await cancel_one(store, first.id)
        assert (await get_one(store, held.id)).state is State.QUEUED
        assert (await apply_one(store, submit(held.id))).applied

    async def test_a_sweep_that_is_repeated_is_answered_alike(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        _, second = await put_in(store, 2)
        await claim_all(store)
        clock.advance(10)
        [head] = await store.due(10)
        assert head.id == second.id
        for _ in range(2):  # another sweeper saw it too, or the first answer was lost
            assert (await apply_one(store, sweep(head, random=even))).applied
            assert (await get_one(store, second.id)).state is State.QUEUED

    async def test_a_suspended_job_keeps_no_slot_and_waits_for_one_when_it_is_woken(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await put_in(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, Suspended(signals=0))
        [other] = await claim_all(store)
        assert other.id == second.id
        for name in ("go", "again"):
            await store.signal([Signal(job_id=first.id, name=name)])
            woken = await get_one(store, first.id)
            assert (woken.state, woken.gate) == (State.RETRYING, QUEUE)
        await end_all(store, [other])
        assert [row.id for row in await claim_all(store)] == [first.id]

    async def test_children_of_a_success_pass_like_all_others(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=2)
        await put_in(store, 1)
        [row] = await claim_all(store)
        children = [make_job() for _ in range(3)]
        await settle_one(store, row, Succeeded(), children=children)
        claimed = await claim_all(store)
        assert [row.id for row in claimed] == [child.id for child in children[:2]]
        assert (await get_one(store, children[2].id)).gate == TASK

    async def test_who_expires_at_a_gate_fails_and_is_passed_by(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 1)
        late = await enqueue_one(store, expires_in=5)
        third = await enqueue_one(store)
        [row] = await claim_all(store)
        clock.advance(6)
        await end_all(store, [row])
        assert [row.id for row in await claim_all(store)] == [third.id]
        await sweep_all(store)
        gone = await get_one(store, late.id)
        assert (gone.state, gone.gate, gone.position) == (State.FAILED, None, None)

    async def test_priority_goes_first_at_a_gate(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        [first] = await put_in(store, 1)
        low = await enqueue_one(store, priority=-1)
        high = await enqueue_one(store, priority=5)
        order = []
        while claimed := await claim_all(store):
            order.append(claimed[0].id)
            await end_all(store, claimed)
        assert order == [first.id, high.id, low.id]

    async def test_a_repeated_claim_answers_the_same_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        await put_in(store, 4)
        claim = Claim(token=uuid7(), worker="w", queues=[("default", 10)])
        first = await store.claim(claim)
        assert len(first) == 2
        assert await store.claim(claim) == first

    async def test_who_waits_at_a_gate_is_counted_and_found_as_created(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 2)
        await put_in(store, 1, expires_in=60)
        await put_in(store, 1, delay=60)
        stats = (await store.stats())["default"]
        assert stats.counts == {State.QUEUED: 1, State.CREATED: 3}
        for row in await claim_all(store):
            await settle_one(store, row, Released())
        stats = (await store.stats())["default"]
        assert stats.counts == {State.QUEUED: 1, State.CREATED: 2, State.RETRYING: 1}

    async def test_finished_jobs_go_and_the_limit_stays_right(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await put_in(store, 5)
        await end_all(store, await claim_all(store))
        clock.advance(100)
        pruned = await store.prune(Retention(succeeded=1), 100)
        assert pruned.jobs == 2
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:4]]

    async def test_where_a_limit_is_a_job_that_is_wrong_in_itself_is_refused(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 1)
        [answer] = await store.enqueue([make_job(delay=-1.0)])
        assert answer.status is EnqueueStatus.REFUSED
        await put_in(store, 1)

    async def test_instants_and_log_stay_in_order(self, store: Store, clock: VirtualClock) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        first, _ = await put_in(store, 2)
        [row] = await claim_all(store)
        clock.advance(3)
        await settle_one(store, row, Failed(failure=make_failure()))
        clock.advance(30)
        await sweep_all(store)
        [other] = await claim_all(store)
        clock.advance(1)
        await end_all(store, [other])
        [again] = await claim_all(store)
        assert again.queued_at == clock.now()
        assert again.due_at is None
        said = [event.data["status"] for event in await read_events(store, first.id)]
        assert said == ["created", "queued", "running", "retrying", "queued", "running"]
        assert after(first.created_at, 34) == clock.now()
        assert replace(again, payload=b"") == replace(await get_one(store, first.id), payload=b"")
