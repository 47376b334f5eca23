"""Tail: a follower of a job gets all its events, stored and live, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Succeeded
from windlass.core.event import Event, EventType
from windlass.core.ids import uuid7
from windlass.core.job.event_log import expected_fold, fold
from windlass.store import DAY, Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.history_helpers import (
    ENDS,
    full_history,
    run_full_history,
    run_long_log,
)
from windlass.testing.factories import (
    append_records,
    cancel_one,
    get_one,
    log_record,
    read_events,
    settle_one,
    start_one,
)

WAIT_TIMEOUT = 20.0  # seconds before a test fails; a correct store needs milliseconds


async def follow(store: Store, job_id: UUID, after: int = 0) -> list[Event]:
    """Return all events of a tail until it ends."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        return [event async for event in store.tail(job_id, after)]


async def next_events(tail: AsyncIterator[Event], count: int) -> list[Event]:
    """Return the next `count` events of a tail."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        return [await anext(tail) for _ in range(count)]


class TestTail:
    @pytest.mark.parametrize("end", ENDS)
    async def test_the_tail_of_a_finished_job_is_its_log_and_ends(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        job_id = await run_full_history(store, clock, ENDS[end])

        assert await follow(store, job_id) == await read_events(store, job_id)

    async def test_a_tail_can_start_after_any_event(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await run_full_history(store, clock, Succeeded())
        whole = await read_events(store, job_id)

        for after in range(len(whole) + 1):
            assert await follow(store, job_id, after) == whole[after:]

    async def test_a_tail_replays_then_follows_live_and_ends_with_the_job(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        tail = store.tail(job.id)
        replayed = await next_events(tail, 3)

        await append_records(store, job, log_record(1, "live"))
        live = await next_events(tail, 1)
        last = asyncio.ensure_future(next_events(tail, 2))
        await append_records(store, job, log_record(2, "live, and waited for"))
        await settle_one(store, job, Succeeded())

        assert [*replayed, *live, *await last] == await read_events(store, job.id)
        async with asyncio.timeout(WAIT_TIMEOUT):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async def test_a_tail_from_the_newest_event_returns_only_new_events(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id, after=job.seq))

        await append_records(store, job, log_record(1, "new"))
        await settle_one(store, job, Succeeded())

        assert await following == (await read_events(store, job.id))[job.seq :]

    async def test_a_tail_follows_through_every_attempt(
        self, store: Store, clock: VirtualClock
    ) -> None:
        history = full_history(store, clock, Succeeded())
        job_id = await anext(history)
        following = asyncio.ensure_future(follow(store, job_id))

        async for _ in history:
            await asyncio.sleep(0)

        assert await following == await read_events(store, job_id)

    async def test_several_tails_of_one_job_return_the_same_events(self, store: Store) -> None:
        job = await start_one(store)
        tails = [asyncio.ensure_future(follow(store, job.id, after)) for after in range(5)]

        await append_records(store, job, log_record(1, "to everyone"))
        await settle_one(store, job, Succeeded())

        whole = await read_events(store, job.id)
        assert await asyncio.gather(*tails) == [whole[after:] for after in range(5)]

    async def test_a_tail_returns_events_written_through_another_handle(
        self, store: Store, open_store: OpenStore
    ) -> None:
        job = await start_one(store)
        async with await open_store() as other:
            following = asyncio.ensure_future(follow(other, job.id))
            await append_records(store, job, log_record(1, "over here"))
            await settle_one(store, job, Succeeded())

            assert await following == await read_events(store, job.id)

    async def test_a_tail_misses_nothing_while_the_log_is_being_written(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id))

        for n in range(1, 101):
            await append_records(store, job, log_record(n, str(n)))
        await settle_one(store, job, Succeeded())

        assert [event.seq for event in await following] == list(range(1, 3 + 100 + 2))

    async def test_a_tail_misses_nothing_while_two_write_at_once(self, store: Store) -> None:
        """An event with a lower number never appears after one with a higher number."""
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id))
        async with store.twin() as operator:
            await asyncio.sleep(0)
            await asyncio.gather(
                append_records(store, job, log_record(1, "at it")), cancel_one(operator, job.id)
            )
        await settle_one(store, job, Succeeded())

        events = await following

        assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
        assert events == await read_events(store, job.id)

    async def test_the_tail_of_an_unknown_job_ends_at_once(self, store: Store) -> None:
        assert await follow(store, uuid7()) == []

    async def test_a_tail_ends_when_its_job_is_deleted(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())
        tail = store.tail(job.id)
        await next_events(tail, 4)

        await store.delete([job.id])

        async with asyncio.timeout(WAIT_TIMEOUT):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async def test_a_tail_of_thousands_of_events_is_complete(self, store: Store) -> None:
        job_id = await run_long_log(store, attempts=2, notes=1250)

        assert await follow(store, job_id) == await read_events(store, job_id)

    async def test_a_tail_behind_a_pruned_log_starts_with_a_resync(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await run_full_history(store, clock, Succeeded())
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)
        row = await get_one(store, job_id)

        events = await follow(store, job_id)

        assert events[0].type is EventType.RESYNC
        assert fold(events) == expected_fold(row)
        assert await follow(store, job_id, after=row.seq) == []
