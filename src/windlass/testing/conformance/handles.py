"""Handles: independent store handles on the same data."""

from __future__ import annotations

import asyncio
from uuid import UUID

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.versioned_record import Put
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.factories import (
    append_records,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    read_events,
    settle_one,
    start_one,
)

WAIT_TIMEOUT = 20.0


class TestHandles:
    async def test_ping_returns_the_stores_time(self, store: Store, clock: VirtualClock) -> None:
        assert await store.ping() == clock.now()

    async def test_migrate_is_idempotent(self, store: Store) -> None:
        job = await enqueue_one(store)

        await store.migrate()
        await store.migrate()

        assert await get_one(store, job.id) == job

    # -- twins

    async def test_a_twin_reads_the_writes_of_the_other(self, store: Store) -> None:
        async with store.twin() as twin:
            assert twin is not store
            assert twin.capabilities == store.capabilities

            job = await enqueue_one(store)
            running = await claim_one(twin)
            await append_records(store, running, log_record(1, "here"))
            await twin.put_records([Put(kind="plan", key="x", value=b"1")])
            await settle_one(twin, running, Succeeded())

            for handle in (store, twin):
                assert (await get_one(handle, job.id)).state is State.SUCCEEDED
                assert len(await read_events(handle, job.id)) == 5
                assert len(await handle.list_records("plan")) == 1

    async def test_a_lease_belongs_to_its_token_not_to_a_handle(self, store: Store) -> None:
        job = await start_one(store)
        async with store.twin() as twin:
            [extended] = await twin.extend([job.lease], 60)

            assert not extended.stale
            assert (await settle_one(twin, job, Succeeded())).applied

    async def test_a_twin_of_a_twin_is_a_twin(self, store: Store) -> None:
        async with store.twin() as second, second.twin() as third:
            job = await enqueue_one(third)

            assert await get_one(store, job.id) == job

    async def test_a_twin_works_after_its_original_is_closed(
        self, store: Store, open_store: OpenStore
    ) -> None:
        first = await open_store()
        job = await enqueue_one(first)
        twin = first.twin()
        await first.close()

        async with twin:
            assert await get_one(twin, job.id) == job
            assert [row.id for row in await claim_all(twin)] == [job.id]
        assert (await get_one(store, job.id)).state is State.RUNNING

    async def test_closing_a_twin_does_not_affect_the_others(self, store: Store) -> None:
        twin = store.twin()
        job = await enqueue_one(twin)
        await twin.close()

        assert await get_one(store, job.id) == job
        assert (await claim_one(store)).id == job.id

    # -- threads

    async def test_a_twin_works_on_another_thread_with_its_own_event_loop(
        self, store: Store
    ) -> None:
        twin = store.twin()

        async def work() -> UUID:
            async with twin:
                job = await enqueue_one(twin)
                running = await claim_one(twin)
                await settle_one(twin, running, Succeeded(result=b"42"))
                async with asyncio.timeout(WAIT_TIMEOUT):
                    events = [event async for event in twin.tail(job.id)]
                assert [event.seq for event in events] == [1, 2, 3, 4]
                return job.id

        job_id = await asyncio.to_thread(lambda: asyncio.run(work()))

        assert (await get_one(store, job_id)).result == b"42"

    async def test_many_threads_work_on_one_store_at_once(self, store: Store) -> None:
        twins = [store.twin() for _ in range(4)]

        def run(twin: Store) -> list[UUID]:
            async def work() -> list[UUID]:
                done = []
                async with twin:
                    for _ in range(10):
                        await enqueue_one(twin)
                        running = await claim_one(twin)
                        assert (await settle_one(twin, running, Succeeded())).applied
                        done.append(running.id)
                return done

            return asyncio.run(work())

        ran = await asyncio.gather(*(asyncio.to_thread(run, twin) for twin in twins))

        ids = [job_id for done in ran for job_id in done]
        assert len(set(ids)) == len(ids) == 40
        rows = (await store.find(JobQuery(states=frozenset({State.SUCCEEDED})))).rows
        assert {row.id for row in rows} == set(ids)

    async def test_an_enqueue_on_one_thread_wakes_a_wait_on_another(self, store: Store) -> None:
        twin = store.twin()

        async def serve() -> UUID:
            async with twin, asyncio.timeout(WAIT_TIMEOUT):
                while not (rows := await claim_all(twin)):
                    await twin.wait(["default"], 1)
                await settle_one(twin, rows[0], Succeeded())
                return rows[0].id

        serving = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(serve())))
        job = await enqueue_one(store)
        async with asyncio.timeout(WAIT_TIMEOUT):
            events = [event async for event in store.tail(job.id)]

        assert await serving == job.id
        assert events[-1].final

    # -- opening and closing

    async def test_a_second_open_sees_the_same_data(
        self, store: Store, open_store: OpenStore
    ) -> None:
        job = await enqueue_one(store)

        async with await open_store() as other:
            assert await get_one(other, job.id) == job
            assert (await claim_one(other)).id == job.id
        assert (await get_one(store, job.id)).state is State.RUNNING

    async def test_data_is_still_there_after_a_reopen(self, open_store: OpenStore) -> None:
        first = await open_store()
        running = await start_one(first)
        await append_records(first, running, log_record(1, "here"))
        before = await get_one(first, running.id), await read_events(first, running.id)
        await first.close()

        async with await open_store() as second:
            after = await get_one(second, running.id), await read_events(second, running.id)
            assert after == before
            assert (await settle_one(second, running, Succeeded())).applied

    async def test_close_is_idempotent(self, open_store: OpenStore) -> None:
        store = await open_store()
        await enqueue_one(store)

        await store.close()
        await store.close()

    async def test_an_unused_store_can_be_closed(self, open_store: OpenStore) -> None:
        store = await open_store()
        twin = store.twin()

        await twin.close()
        await store.close()

    async def test_closing_one_handle_twice_does_not_close_another(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        twin = store.twin()
        await store.close()
        await store.close()

        job = await enqueue_one(twin)

        assert await get_one(twin, job.id) == job
        await twin.close()

    async def test_close_waits_for_calls_in_progress(
        self, store: Store, open_store: OpenStore
    ) -> None:
        other = await open_store()
        calls = [asyncio.ensure_future(enqueue_one(other)) for _ in range(20)]
        await asyncio.sleep(0)

        await other.close()

        async with asyncio.timeout(WAIT_TIMEOUT):
            jobs = await asyncio.gather(*calls)
        assert None not in await store.get([job.id for job in jobs])

    async def test_a_closed_store_leaves_no_tasks_or_threads(self, open_store: OpenStore) -> None:
        before = asyncio.all_tasks()
        store = await open_store()
        jobs = [await enqueue_one(store) for _ in range(3)]
        running = await claim_all(store)

        async def follow(job_id: UUID) -> int:
            return len([event async for event in store.tail(job_id)])

        following = [asyncio.ensure_future(follow(job.id)) for job in jobs]
        await store.wait(["default"], 0.01)
        for row in running:
            await settle_one(store, row, Succeeded())
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await asyncio.gather(*following) == [4, 4, 4]

        await store.close()

        assert asyncio.all_tasks() == before

    async def test_a_canceled_call_leaves_the_store_consistent(self, store: Store) -> None:
        """The write is complete or absent, never partial; it may still complete later."""
        for _ in range(20):
            call = asyncio.ensure_future(enqueue_one(store, request_id=str(uuid7())))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])

        claimed = {row.id for row in await claim_all(store)}
        rows = (await store.find(JobQuery())).rows
        assert claimed <= {row.id for row in rows}
        for row in rows:
            assert row.state is (State.RUNNING if row.id in claimed else State.QUEUED)
            assert len(await read_events(store, row.id)) == row.seq
