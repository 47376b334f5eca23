"""Gates: waiting jobs, holders and the next check of each gate."""

from __future__ import annotations

from windlass.core.admission.gates import GateStats, gates_of
from windlass.core.clock import after
from windlass.core.decisions.outcome import Released, Snoozed, Succeeded
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    KEYS,
    QUEUE,
    TASK,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import (
    append_records,
    cancel_one,
    claim_all,
    enqueue_one,
    log_record,
    settle_one,
    sweep_all,
)


def key_gate(key: str) -> str:
    [gate] = gates_of("default", "test.noop", key, {KEYS})
    return gate


class TestGates:
    async def test_no_gate_names_return_no_gates(self, store: Store) -> None:
        assert await store.insights.gates([]) == []

    async def test_an_unused_gate_is_empty(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        assert await store.insights.gates([QUEUE, "task:unheard.of"]) == [GateStats(), GateStats()]

    async def test_a_gate_counts_waiting_and_admitted_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await enqueue_several(store, 5)
        stats = GateStats(waiting=3, in_use=2, holders=(rows[0].id, rows[1].id))
        assert await store.insights.gates([QUEUE]) == [stats]
        [running] = await claim_all(store, limit=1)
        assert await store.insights.gates([QUEUE]) == [stats]
        await settle_all(store, [running])
        [found] = await store.insights.gates([QUEUE])
        assert found == GateStats(waiting=2, in_use=2, holders=(rows[1].id, rows[2].id))

    async def test_the_three_oldest_holders_are_listed(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=9)
        ids = []
        for _ in range(5):
            ids.append((await enqueue_one(store)).id)
            clock.advance(1)
        [found] = await store.insights.gates([QUEUE])
        assert (found.in_use, found.holders) == (5, tuple(ids[:3]))

    async def test_holders_of_the_same_instant_are_ordered_by_id(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=9)
        rows = await enqueue_several(store, 5)
        [found] = await store.insights.gates([QUEUE])
        assert found.holders == tuple(sorted(row.id for row in rows)[:3])

    async def test_gates_are_returned_in_the_order_of_the_names(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        await enqueue_several(store, 3, limit_key="ada")
        await enqueue_several(store, 2, limit_key="bob")
        names = [key_gate("bob"), TASK, key_gate("ada"), key_gate("eve"), key_gate("bob")]
        found = await store.insights.gates(names)
        assert [(one.waiting, one.in_use) for one in found] == [
            (1, 1), (0, 0), (2, 1), (0, 0), (1, 1),
        ]  # fmt: skip

    async def test_a_job_waiting_at_a_later_gate_holds_the_earlier_one(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_one(store)
        waiting = await enqueue_one(store, limit_key="ada")
        assert waiting.gate == QUEUE
        narrow, wide = await store.insights.gates([key_gate("ada"), QUEUE])
        assert narrow == GateStats(waiting=0, in_use=1, holders=(waiting.id,))
        assert (wide.waiting, wide.in_use) == (1, 1)

    async def test_an_ended_or_released_job_holds_no_permit(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await enqueue_several(store, 3)
        first, second, third = await claim_all(store)
        await settle_one(store, first, Succeeded())
        await settle_one(store, second, Snoozed(delay=60))
        await cancel_one(store, third.id)  # a running job only gets a cancel request
        [found] = await store.insights.gates([QUEUE])
        assert found == GateStats(in_use=1, holders=(rows[2].id,))
        await settle_one(store, third, Succeeded())
        assert await store.insights.gates([QUEUE]) == [GateStats()]

    async def test_a_released_job_is_admitted_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        [first] = await enqueue_several(store, 1)
        [row] = await claim_all(store)
        clock.advance(1)
        await settle_one(store, row, Released())
        assert await store.insights.gates([QUEUE]) == [GateStats(in_use=1, holders=(first.id,))]

    async def test_a_rate_limit_reports_when_to_check_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        await enqueue_several(store, 2)
        started_at = clock.now()
        await settle_all(store, await claim_all(store))
        [found] = await store.insights.gates([TASK])
        assert found == GateStats(waiting=1, next_check_at=after(started_at, 10))
        clock.advance(10)
        await sweep_all(store)
        [found] = await store.insights.gates([TASK])
        assert (found.waiting, found.in_use, found.next_check_at) == (0, 1, None)

    async def test_without_a_rate_only_the_end_of_a_job_frees_capacity(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        await enqueue_several(store, 2)
        [found] = await store.insights.gates([TASK])
        assert found.next_check_at is None

    async def test_a_gate_with_a_changed_limit_is_checked_now(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        await enqueue_several(store, 2)
        await set_limit(store, TASK, concurrency=2)
        [found] = await store.insights.gates([TASK])
        assert found.next_check_at is not None
        assert found.next_check_at <= clock.now()

    async def test_reading_gates_changes_nothing(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        rows = await enqueue_several(store, 3)
        for _ in range(3):
            await store.insights.gates([TASK])
        assert await store.get([row.id for row in rows]) == rows

    async def test_a_refused_call_checks_no_gate(self, store: Store, clock: VirtualClock) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        await enqueue_several(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, Released())
        before = await store.insights.gates([TASK])
        clock.advance(12)
        assert not (await append_records(store, row, log_record(1))).applied
        await enqueue_one(store, task="other")
        assert await store.insights.gates([TASK]) == before
