"""Watched lists: one poll for all subscribers of a list, a few lists at a time."""

from __future__ import annotations

import asyncio
import contextlib

from tests.server.recording_store import RecordingStore

from windlass.client import Client
from windlass.core.codec import JsonCodec
from windlass.core.decisions.outcome import Succeeded
from windlass.core.query.job_query import JobQuery
from windlass.server.streaming.list_watch import MAX_POLLS, ListWatches
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import settle_one, start_one

LISTS = 50


async def first_snapshots(watches: ListWatches, query: JobQuery) -> bytes:
    async with contextlib.aclosing(watches.snapshots(query, "list")) as result:
        return await anext(result)


async def test_a_hundred_subscribers_of_one_list_share_one_poll() -> None:
    store = RecordingStore(MemoryStore())
    client = Client(store, JsonCodec())
    job = await start_one(store)
    watches = ListWatches(lambda: client, 0.05)
    found: list[bytes] = []

    async def subscribe() -> None:
        async with contextlib.aclosing(watches.snapshots(JobQuery(owner="", limit=20))) as result:
            async for piece in result:
                found.append(piece)  # noqa: PERF401 - it is looked at while it grows

    store.calls.clear()
    began = asyncio.get_running_loop().time()
    subscribers = [asyncio.create_task(subscribe()) for _ in range(100)]
    while len(found) < 100:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await settle_one(store, job, Succeeded())
    while len(found) < 200:  # noqa: ASYNC110
        await asyncio.sleep(0)
    expected_polls = 1 + (asyncio.get_running_loop().time() - began) / 0.05
    for item in subscribers:
        item.cancel()
    await asyncio.gather(*subscribers, return_exceptions=True)
    assert store.calls["find"] <= expected_polls
    assert all(b'"state":"succeeded"' in piece for piece in found[100:])


async def test_a_few_lists_are_polled_at_a_time() -> None:
    store = RecordingStore(MemoryStore())
    store.held = {"find"}
    store.free.clear()
    client = Client(store, JsonCodec())
    watches = ListWatches(lambda: client, 1.0)
    subscribers = [
        asyncio.create_task(first_snapshots(watches, JobQuery(queues=frozenset({str(n)}))))
        for n in range(LISTS)
    ]
    await asyncio.sleep(0.05)
    assert store.running["find"] == MAX_POLLS
    store.free.set()
    assert all(b"loaded" in result for result in await asyncio.gather(*subscribers))
    assert store.calls["find"] == LISTS
