"""Replay of a log for many concurrent clients: they share reads."""

from __future__ import annotations

import asyncio
import contextlib

from tests.server.recording_store import RecordingStore

from windlass.client import Client
from windlass.core.codec import JsonCodec
from windlass.core.decisions.outcome import Succeeded
from windlass.server.config import ServerConfig
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.stream_filter import StreamFilter
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import append_records, log_record, settle_one, start_one

CLIENTS = 50


async def test_concurrent_clients_share_one_read_of_the_log() -> None:
    store = RecordingStore(MemoryStore(clock=VirtualClock()))
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)
    for number in range(1, 21):
        await append_records(store, job, log_record(number, f"line {number}"))
    await settle_one(store, job, Succeeded())

    async def read_all() -> list[bytes]:
        return [
            event.for_job_stream
            async for events in hub.follow(job.id, StreamFilter())
            for event in events
        ]

    alone = await read_all()
    pages = store.calls["events"]
    found = await asyncio.gather(*(read_all() for _ in range(CLIENTS)))
    assert all(result == alone for result in found)
    assert len(alone) == 24
    assert store.calls["events"] == 2 * pages


async def test_a_disconnect_does_not_cancel_a_shared_read() -> None:
    store = RecordingStore(MemoryStore(clock=VirtualClock()))
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)

    async def first() -> list[int]:
        async with contextlib.aclosing(hub.follow(job.id, StreamFilter())) as events:
            return [event.seq for event in await anext(events)]

    canceled, remaining = asyncio.create_task(first()), asyncio.create_task(first())
    await asyncio.sleep(0)
    canceled.cancel()
    assert await remaining == [1, 2, 3]
