"""Wake-up: a waiting worker is woken by every write that makes a job claimable."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from windlass.core.decisions.outcome import Released, Snoozed, Succeeded, settle
from windlass.core.decisions.transition import submit
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    make_job,
    no_jitter,
    set_paused,
    settle_one,
    start_one,
    sweep_all,
)

LONG = 30.0  # seconds to wait; a woken wait returns in milliseconds
WAIT_TIMEOUT = 10.0  # upper bound: after it, the wait was not woken
SHORT = 0.05


async def woken(store: Store) -> bool:
    """Whether the wait was woken before its timeout."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        return await store.wait(["default"], LONG)


class TestWakeup:
    @pytest.fixture(autouse=True)
    def _requires_push_wakeups(self, store: Store) -> None:
        if not store.capabilities.push_wakeups:
            pytest.skip("without push_wakeups a wait may end by its timeout alone")

    async def test_a_wait_without_a_wakeup_ends_at_its_timeout(self, store: Store) -> None:
        """A wake-up without a job is allowed, but not repeatedly."""
        for _ in range(3):
            assert await claim_all(store) == []
            began = time.monotonic()
            if not await store.wait(["default"], SHORT):
                assert time.monotonic() - began >= SHORT * 0.9
                return
        pytest.fail("woken three times without a job")

    async def test_an_enqueue_through_a_twin_wakes_a_wait(self, store: Store) -> None:
        await claim_all(store)
        async with store.twin() as other:
            waiting = asyncio.ensure_future(woken(store))
            await asyncio.sleep(0)
            await enqueue_one(other)

            assert await waiting
        assert len(await claim_all(store)) == 1

    async def test_an_enqueue_between_claim_and_wait_wakes_the_wait(self, store: Store) -> None:
        async with store.twin() as other:
            assert await claim_all(store) == []
            await enqueue_one(other)

            assert await woken(store)

    async def test_every_enqueue_wakes_the_next_wait(self, store: Store) -> None:
        async with store.twin() as other:
            for _ in range(5):
                assert await claim_all(store) == []
                waiting = asyncio.ensure_future(woken(store))
                await enqueue_one(other)
                assert await waiting
                await settle_one(store, await claim_one(store), Succeeded())

    async def test_an_enqueue_by_another_process_wakes_a_wait(
        self, store: Store, open_store: OpenStore
    ) -> None:
        async with await open_store() as other:
            await claim_all(store)
            waiting = asyncio.ensure_future(woken(store))
            await asyncio.sleep(SHORT)  # by now it listens, or it reads the store again
            await enqueue_one(other)

            assert await waiting
        assert len(await claim_all(store)) == 1

    async def test_an_enqueue_by_another_process_between_claim_and_wait_wakes_the_wait(
        self, store: Store, open_store: OpenStore
    ) -> None:
        async with await open_store() as other:
            for _ in range(3):
                assert await claim_all(store) == []
                await enqueue_one(other)
                assert await woken(store)
                await settle_one(store, await claim_one(store), Succeeded())

    async def test_an_enqueue_from_another_thread_wakes_a_wait(self, store: Store) -> None:
        await claim_all(store)
        other = store.twin()
        start = threading.Event()

        async def work() -> None:
            start.wait(WAIT_TIMEOUT)
            async with other:
                await enqueue_one(other)

        thread = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(work())))
        waiting = asyncio.ensure_future(woken(store))
        await asyncio.sleep(0)
        start.set()

        assert await waiting
        await thread

    async def test_all_waits_are_woken(self, store: Store) -> None:
        async with store.twin() as second, store.twin() as third:
            handles = [store, second, third]
            for handle in handles:
                await claim_all(handle)
            waiting = [asyncio.ensure_future(woken(handle)) for handle in [*handles, store]]
            await asyncio.sleep(0)
            await enqueue_one(third)

            assert await asyncio.gather(*waiting) == [True] * 4

    # -- writes that make a job claimable

    async def test_a_submit_wakes_a_wait(self, store: Store) -> None:
        job = await enqueue_one(store, hold=True)
        await claim_all(store)

        await store.apply([submit(job.id)])

        assert await woken(store)

    async def test_a_release_wakes_a_wait(self, store: Store) -> None:
        job = await start_one(store)
        async with store.twin() as other:
            await claim_all(other)

            await settle_one(store, job, Released())

            assert await woken(other)

    async def test_a_promote_wakes_a_wait(self, store: Store, clock: VirtualClock) -> None:
        await enqueue_one(store, delay=5)
        snoozing = await start_one(store, queue="other")
        await settle_one(store, snoozing, Snoozed(delay=5))
        clock.advance(5)
        await claim_all(store)

        await sweep_all(store)

        assert await woken(store)

    async def test_a_rescue_wakes_a_wait(self, store: Store, clock: VirtualClock) -> None:
        await start_one(store)
        clock.advance(31)
        await claim_all(store)

        await sweep_all(store)

        assert await woken(store)

    async def test_a_child_of_a_success_wakes_a_wait(self, store: Store) -> None:
        job = await start_one(store)
        await claim_all(store)

        await store.apply([settle(job, Succeeded(), random=no_jitter, children=[make_job()])])

        assert await woken(store)

    async def test_a_resumed_queue_wakes_a_wait(self, store: Store) -> None:
        await set_paused(store, ["default"], paused=True)
        await enqueue_one(store)
        assert await claim_all(store) == []

        await set_paused(store, ["default"], paused=False)

        assert await woken(store)
        assert len(await claim_all(store)) == 1

    async def test_a_queue_resumed_by_another_process_wakes_a_wait(
        self, store: Store, open_store: OpenStore
    ) -> None:
        await set_paused(store, ["default"], paused=True)
        await enqueue_one(store)
        async with await open_store() as other:
            assert await claim_all(store) == []
            waiting = asyncio.ensure_future(woken(store))
            await asyncio.sleep(SHORT)
            await set_paused(other, ["default"], paused=False)

            assert await waiting

    async def test_a_wait_can_be_canceled(self, store: Store) -> None:
        await claim_all(store)
        waiting = asyncio.ensure_future(store.wait(["default"], LONG))
        await asyncio.sleep(SHORT)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        await enqueue_one(store)

        assert await woken(store)
