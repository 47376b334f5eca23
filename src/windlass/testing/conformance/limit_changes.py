"""Limits that come, change and go while jobs wait and run."""

from __future__ import annotations

import pytest

from windlass.core.admission.gates import LIMIT, Limit, Setting
from windlass.core.errors import InvalidArgumentError
from windlass.core.records import Put
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits import KEYS, QUEUE, end_all, put_in, set_limit
from windlass.testing.factories import claim_all, enqueue_one, make_job, start_one, sweep_all


class TestNewLimits:
    async def test_a_limit_that_is_raised_lets_more_in_with_the_next_sweep(
        self, store: Store
    ) -> None:
        await set_limit(store, KEYS, concurrency=1)
        rows = await put_in(store, 4, limit_key="ada")
        await claim_all(store)
        assert await store.due(10) == []
        await set_limit(store, KEYS, concurrency=3)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[1:3]]

    async def test_a_limit_that_is_lowered_lets_none_in_until_fewer_run(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await put_in(store, 5)
        running = await claim_all(store)
        await set_limit(store, QUEUE, concurrency=1)
        await end_all(store, running[:2])
        await sweep_all(store)
        assert await claim_all(store) == []
        await end_all(store, running[2:])
        assert [row.id for row in await claim_all(store)] == [rows[3].id]

    async def test_a_limit_that_is_removed_lets_all_in(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        rows = await put_in(store, 4)
        await store.delete_records(LIMIT, [QUEUE])
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows]
        assert (await enqueue_one(store)).gates == ()

    async def test_a_limit_that_is_set_again_counts_all_who_are_in(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 2)
        before = await claim_all(store)
        await store.delete_records(LIMIT, [QUEUE])
        await sweep_all(store)
        meanwhile = await claim_all(store)
        await set_limit(store, QUEUE, concurrency=1)
        [later] = await put_in(store, 1)
        [found] = await store.gates([QUEUE])
        assert (found.waiting, found.holding) == (1, 2)
        await end_all(store, before)
        assert await claim_all(store) == []
        await end_all(store, meanwhile)
        assert [row.id for row in await claim_all(store)] == [later.id]

    async def test_a_limit_that_is_lifted_while_nobody_waits_forgets_nobody(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        await put_in(store, 2)
        running = await claim_all(store)
        await store.delete_records(LIMIT, [QUEUE])
        await end_all(store, running[:1])
        await set_limit(store, QUEUE, concurrency=1)
        [later] = await put_in(store, 1)
        assert await claim_all(store) == []
        await end_all(store, running[1:])
        assert [row.id for row in await claim_all(store)] == [later.id]

    async def test_starts_are_forgotten_while_there_is_no_rate(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        await put_in(store, 1)
        await end_all(store, await claim_all(store))
        clock.advance(-1)
        await set_limit(store, QUEUE, concurrency=1)
        await put_in(store, 1)
        await end_all(store, await claim_all(store))
        await set_limit(store, QUEUE, starts=1, period=10)
        await put_in(store, 1)
        assert len(await claim_all(store)) == 1

    async def test_a_job_put_in_again_under_its_old_id_holds_nothing_of_the_old(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1, starts=2, period=10)
        new = make_job()
        await store.enqueue([new])
        await end_all(store, await claim_all(store))
        await store.delete([new.id])
        other = await start_one(store)
        [again] = await store.enqueue([new])
        assert again.row is not None
        assert again.row.gate == QUEUE
        [found] = await store.gates([QUEUE])
        assert (found.holding, found.holders) == (1, (other.id,))

    async def test_a_limit_holds_for_jobs_that_come_after_it(self, store: Store) -> None:
        before = await put_in(store, 2)
        await set_limit(store, QUEUE, concurrency=1)
        later = await put_in(store, 2)
        assert [row.id for row in await claim_all(store)] == [
            *(row.id for row in before), later[0].id,
        ]  # fmt: skip

    async def test_a_record_that_is_no_limit_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidArgumentError, match="cannot be read"):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=b"much")])
        hidden = b'{"given": {"concurrency": 1, "starts": null, "period": null}, "declared": null}'
        with pytest.raises(InvalidArgumentError, match="1 at once, does not stand first"):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=hidden)])
        with pytest.raises(InvalidArgumentError, match="queue:NAME"):
            await set_limit(store, "everything", concurrency=1)
        value = Setting(given=Limit(concurrency=1)).encode()
        with pytest.raises(InvalidArgumentError, match="no ttl"):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=value, ttl=60)])
