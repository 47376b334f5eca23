"""Limit changes: limits that are set, changed and removed while jobs wait and run."""

from __future__ import annotations

import pytest

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.errors import InvalidArgumentError
from windlass.core.versioned_record import Put
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    KEYS,
    QUEUE,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import claim_all, enqueue_one, make_job, start_one, sweep_all


class TestLimitChanges:
    async def test_a_raised_limit_admits_more_jobs_at_the_next_sweep(self, store: Store) -> None:
        await set_limit(store, KEYS, concurrency=1)
        rows = await enqueue_several(store, 4, limit_key="ada")
        await claim_all(store)
        assert await store.due(10) == []
        await set_limit(store, KEYS, concurrency=3)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows[1:3]]

    async def test_a_lowered_limit_admits_no_job_until_fewer_run(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=3)
        rows = await enqueue_several(store, 5)
        running = await claim_all(store)
        await set_limit(store, QUEUE, concurrency=1)
        await settle_all(store, running[:2])
        await sweep_all(store)
        assert await claim_all(store) == []
        await settle_all(store, running[2:])
        assert [row.id for row in await claim_all(store)] == [rows[3].id]

    async def test_a_removed_limit_admits_all_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        rows = await enqueue_several(store, 4)
        await store.delete_records(LIMIT, [QUEUE])
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [row.id for row in rows]
        assert (await enqueue_one(store)).gates == ()

    async def test_a_limit_that_is_set_again_counts_all_admitted_jobs(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 2)
        before = await claim_all(store)
        await store.delete_records(LIMIT, [QUEUE])
        await sweep_all(store)
        admitted = await claim_all(store)
        await set_limit(store, QUEUE, concurrency=1)
        [later] = await enqueue_several(store, 1)
        [found] = await store.insights.gates([QUEUE])
        assert (found.waiting, found.in_use) == (1, 2)
        await settle_all(store, before)
        assert await claim_all(store) == []
        await settle_all(store, admitted)
        assert [row.id for row in await claim_all(store)] == [later.id]

    async def test_a_limit_removed_while_no_job_waits_keeps_its_counts(self, store: Store) -> None:
        await set_limit(store, QUEUE, concurrency=2)
        await enqueue_several(store, 2)
        running = await claim_all(store)
        await store.delete_records(LIMIT, [QUEUE])
        await settle_all(store, running[:1])
        await set_limit(store, QUEUE, concurrency=1)
        [later] = await enqueue_several(store, 1)
        assert await claim_all(store) == []
        await settle_all(store, running[1:])
        assert [row.id for row in await claim_all(store)] == [later.id]

    async def test_starts_are_not_counted_without_a_rate(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await set_limit(store, QUEUE, starts=1, period=10)
        await enqueue_several(store, 1)
        await settle_all(store, await claim_all(store))
        clock.advance(-1)
        await set_limit(store, QUEUE, concurrency=1)
        await enqueue_several(store, 1)
        await settle_all(store, await claim_all(store))
        await set_limit(store, QUEUE, starts=1, period=10)
        await enqueue_several(store, 1)
        assert len(await claim_all(store)) == 1

    async def test_a_job_enqueued_again_under_its_old_id_holds_no_old_permits(
        self, store: Store
    ) -> None:
        await set_limit(store, QUEUE, concurrency=1, starts=2, period=10)
        new = make_job()
        await store.enqueue([new])
        await settle_all(store, await claim_all(store))
        await store.delete([new.id])
        other = await start_one(store)
        [again] = await store.enqueue([new])
        assert again.row is not None
        assert again.row.gate == QUEUE
        [found] = await store.insights.gates([QUEUE])
        assert (found.in_use, found.holders) == (1, (other.id,))

    async def test_a_limit_applies_to_later_jobs(self, store: Store) -> None:
        before = await enqueue_several(store, 2)
        await set_limit(store, QUEUE, concurrency=1)
        later = await enqueue_several(store, 2)
        assert [row.id for row in await claim_all(store)] == [
            *(row.id for row in before), later[0].id,
        ]  # fmt: skip

    async def test_an_invalid_limit_record_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidArgumentError, match="is malformed"):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=b"much")])
        hidden = (
            b'{"override": {"concurrency": 1, "starts": null, "period": null}, "declared": null}'
        )
        with pytest.raises(
            InvalidArgumentError, match="the first fields must be the limit, 1 at once"
        ):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=hidden)])
        with pytest.raises(InvalidArgumentError, match="queue:NAME"):
            await set_limit(store, "everything", concurrency=1)
        value = LimitSetting(override=Limit(concurrency=1)).encode()
        with pytest.raises(InvalidArgumentError, match="cannot have a ttl"):
            await store.put_records([Put(kind=LIMIT, key=QUEUE, value=value, ttl=60)])
