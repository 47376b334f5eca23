"""Whoever follows a job hears all of its log, past and to come, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Succeeded
from windlass.core.event import Event, EventType, fold, snapshot
from windlass.core.ids import uuid7
from windlass.store import DAY, Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.job_histories import ENDS, chatter, lived, rich_life
from windlass.testing.factories import (
    cancel_one,
    get_one,
    note,
    read_events,
    say,
    settle_one,
    start_one,
)

PATIENCE = 20.0  # seconds before a test gives up waiting; a sound store needs a blink


async def follow(store: Store, job_id: UUID, after: int = 0) -> list[Event]:
    """All that `tail` tells, until it ends by itself."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in store.tail(job_id, after)]


async def heard(tail: AsyncIterator[Event], count: int) -> list[Event]:
    """The next events of a tail."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(tail) for _ in range(count)]


class TestTailing:
    @pytest.mark.parametrize("end", ENDS)
    async def test_the_tail_of_a_finished_job_is_its_log_and_ends(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        job_id = await lived(store, clock, ENDS[end])

        assert await follow(store, job_id) == await read_events(store, job_id)

    async def test_a_tail_begins_after_any_event(self, store: Store, clock: VirtualClock) -> None:
        job_id = await lived(store, clock, Succeeded())
        whole = await read_events(store, job_id)

        for after in range(len(whole) + 1):
            assert await follow(store, job_id, after) == whole[after:]

    async def test_a_tail_replays_then_follows_live_and_ends_with_the_job(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        tail = store.tail(job.id)
        replayed = await heard(tail, 3)

        await say(store, job, note(1, "live"))
        live = await heard(tail, 1)
        last = asyncio.ensure_future(heard(tail, 2))
        await say(store, job, note(2, "live, and waited for"))
        await settle_one(store, job, Succeeded())

        assert [*replayed, *live, *await last] == await read_events(store, job.id)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async def test_a_tail_from_the_present_tells_only_what_comes(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id, after=job.seq))

        await say(store, job, note(1, "new"))
        await settle_one(store, job, Succeeded())

        assert await following == (await read_events(store, job.id))[job.seq :]

    async def test_a_tail_follows_through_every_attempt(
        self, store: Store, clock: VirtualClock
    ) -> None:
        life = rich_life(store, clock, Succeeded())
        job_id = await anext(life)
        following = asyncio.ensure_future(follow(store, job_id))

        async for _ in life:
            await asyncio.sleep(0)

        assert await following == await read_events(store, job_id)

    async def test_several_tails_of_one_job_tell_the_same(self, store: Store) -> None:
        job = await start_one(store)
        tails = [asyncio.ensure_future(follow(store, job.id, after)) for after in range(5)]

        await say(store, job, note(1, "to everyone"))
        await settle_one(store, job, Succeeded())

        whole = await read_events(store, job.id)
        assert await asyncio.gather(*tails) == [whole[after:] for after in range(5)]

    async def test_a_tail_hears_what_another_opening_of_the_store_writes(
        self, store: Store, open_store: OpenStore
    ) -> None:
        job = await start_one(store)
        async with await open_store() as other:
            following = asyncio.ensure_future(follow(other, job.id))
            await say(store, job, note(1, "over here"))
            await settle_one(store, job, Succeeded())

            assert await following == await read_events(store, job.id)

    async def test_a_tail_misses_nothing_while_the_log_is_being_written(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id))

        for n in range(1, 101):
            await say(store, job, note(n, str(n)))
        await settle_one(store, job, Succeeded())

        assert [event.seq for event in await following] == list(range(1, 3 + 100 + 2))

    async def test_a_tail_misses_nothing_while_two_write_at_once(self, store: Store) -> None:
        """Whoever took the lower number is never seen after the one who took the higher."""
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id))
        async with store.twin() as operator:
            await asyncio.sleep(0)
            await asyncio.gather(say(store, job, note(1, "at it")), cancel_one(operator, job.id))
        await settle_one(store, job, Succeeded())

        told = await following

        assert [event.seq for event in told] == [1, 2, 3, 4, 5, 6]
        assert told == await read_events(store, job.id)

    async def test_the_tail_of_an_unknown_job_ends_at_once(self, store: Store) -> None:
        assert await follow(store, uuid7()) == []

    async def test_a_tail_ends_when_its_job_is_deleted(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())
        tail = store.tail(job.id)
        await heard(tail, 4)

        await store.delete([job.id])

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async def test_a_tail_of_thousands_comes_in_pages_nobody_notices(self, store: Store) -> None:
        job_id = await chatter(store, attempts=2, notes=1250)

        assert await follow(store, job_id) == await read_events(store, job_id)

    async def test_a_tail_from_behind_a_pruned_log_begins_with_a_resync(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await lived(store, clock, Succeeded())
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)
        row = await get_one(store, job_id)

        told = await follow(store, job_id)

        assert told[0].type is EventType.RESYNC
        assert fold(told) == snapshot(row)
        assert await follow(store, job_id, after=row.seq) == []
