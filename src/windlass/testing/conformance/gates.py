"""What a store tells of its gates: who waits at each, who holds it, and when to look again."""

from __future__ import annotations

from windlass.core.admission.gates import GateStats, gates_of
from windlass.core.clock import after
from windlass.core.decisions.outcome import Released, Snoozed, Succeeded
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import KEYS, QUEUE, TASK, end_all, put_in, set_limit
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    enqueue_one,
    note,
    say,
    settle_one,
    sweep_all,
)


def key_gate(key: str) -> str:
    [gate] = gates_of("default", "test.noop", key, {KEYS})
    return gate


class TestGates:
    async def test_nothing_is_asked_and_nothing_is_answered(self, store: Store) -> None:
        assert await store.gates([]) == []

    async def test_a_gate_that_nobody_came_to_is_empty(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        assert await store.gates([QUEUE, "task:unheard.of"]) == [GateStats(), GateStats()]

    async def test_it_tells_who_waits_and_who_holds_in_line_or_running(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        rows = await put_in(store, 5)
        in_line = GateStats(waiting=3, holding=2, holders=(rows[0].id, rows[1].id))
        assert await store.gates([QUEUE]) == [in_line]
        [running] = await claim_all(store, limit=1)
        assert await store.gates([QUEUE]) == [in_line]
        await end_all(store, [running])
        [found] = await store.gates([QUEUE])
        assert found == GateStats(waiting=2, holding=2, holders=(rows[1].id, rows[2].id))

    async def test_the_three_longest_holders_are_named(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=9)
        ids = []
        for _ in range(5):
            ids.append((await enqueue_one(store)).id)
            clock.advance(1)
        [found] = await store.gates([QUEUE])
        assert (found.holding, found.holders) == (5, tuple(ids[:3]))

    async def test_those_of_the_same_instant_are_named_by_their_ids(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=9)
        rows = await put_in(store, 5)
        [found] = await store.gates([QUEUE])
        assert found.holders == tuple(sorted(row.id for row in rows)[:3])

    async def test_answers_come_in_the_order_of_the_names(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        await put_in(store, 3, limit_key="ada")
        await put_in(store, 2, limit_key="bob")
        names = [key_gate("bob"), TASK, key_gate("ada"), key_gate("eve"), key_gate("bob")]
        found = await store.gates(names)
        assert [(one.waiting, one.holding) for one in found] == [
            (1, 1), (0, 0), (2, 1), (0, 0), (1, 1),
        ]  # fmt: skip

    async def test_who_waits_at_a_later_gate_holds_the_earlier_one(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_one(store)
        waiting = await enqueue_one(store, limit_key="ada")
        assert waiting.gate == QUEUE
        narrow, wide = await store.gates([key_gate("ada"), QUEUE])
        assert narrow == GateStats(waiting=0, holding=1, holders=(waiting.id,))
        assert (wide.waiting, wide.holding) == (1, 1)

    async def test_who_has_ended_or_given_back_holds_nothing(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await put_in(store, 3)
        first, second, third = await claim_all(store)
        await settle_one(store, first, Succeeded())
        await settle_one(store, second, Snoozed(delay=60))
        await cancel_one(store, third.id)  # it is only asked to stop
        [found] = await store.gates([QUEUE])
        assert found == GateStats(holding=1, holders=(rows[2].id,))
        await settle_one(store, third, Succeeded())
        assert await store.gates([QUEUE]) == [GateStats()]

    async def test_one_that_is_released_holds_its_slot_anew(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        [first] = await put_in(store, 1)
        [row] = await claim_all(store)
        clock.advance(1)
        await settle_one(store, row, Released())
        assert await store.gates([QUEUE]) == [GateStats(holding=1, holders=(first.id,))]

    async def test_a_rate_says_when_to_look_again(self, store: Store, clock: VirtualClock) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        await put_in(store, 2)
        begun = clock.now()
        await end_all(store, await claim_all(store))
        [found] = await store.gates([TASK])
        assert found == GateStats(waiting=1, look_at=after(begun, 10))
        clock.advance(10)
        await sweep_all(store)
        [found] = await store.gates([TASK])
        assert (found.waiting, found.holding, found.look_at) == (0, 1, None)

    async def test_without_a_rate_only_an_end_makes_room(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        await put_in(store, 2)
        [found] = await store.gates([TASK])
        assert found.look_at is None

    async def test_a_gate_whose_limit_was_changed_is_to_be_looked_at_now(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, concurrency=1)
        await put_in(store, 2)
        await set_limit(store, TASK, concurrency=2)
        [found] = await store.gates([TASK])
        assert found.look_at is not None
        assert found.look_at <= clock.now()

    async def test_to_look_changes_nothing(self, store: Store) -> None:
        await set_limit(store, TASK, concurrency=1)
        rows = await put_in(store, 3)
        for _ in range(3):
            await store.gates([TASK])
        assert await store.get([row.id for row in rows]) == rows

    async def test_what_is_refused_has_no_gate_looked_at(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, TASK, starts=1, period=10)
        await put_in(store, 2)
        [row] = await claim_all(store)
        await settle_one(store, row, Released())
        before = await store.gates([TASK])
        clock.advance(12)
        assert not (await say(store, row, note(1))).applied
        await enqueue_one(store, task="other")
        assert await store.gates([TASK]) == before
