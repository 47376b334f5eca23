"""The event hub without a server: the switch from replay to live events, and fan-out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

from windlass.client import Client
from windlass.core.codec import JsonCodec
from windlass.core.decisions.outcome import Succeeded
from windlass.server.config import ServerConfig
from windlass.server.streaming.event_encoder import EncodedEvent
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.job_channel import FANOUT_BATCH
from windlass.server.streaming.stream_filter import StreamFilter
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import append_records, log_record, settle_one, start_one


async def seqs(events: AsyncGenerator[list[EncodedEvent], None]) -> list[int]:
    return [event.seq for event in await anext(events)]


async def test_events_between_replay_and_live_reader_are_not_lost() -> None:
    """The shared reader is one event ahead of a client that has just read the log."""
    store = MemoryStore(clock=VirtualClock())
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)
    async with (
        aclosing(hub.follow(job.id, StreamFilter())) as first,
        aclosing(hub.follow(job.id, StreamFilter())) as second,
    ):
        assert await seqs(first) == [1, 2, 3]
        await append_records(store, job, log_record(1, "read by the shared reader"))
        assert await seqs(first) == [4]
        assert await seqs(second) == [1, 2, 3, 4]
        await append_records(store, job, log_record(2, "in between"))
        assert await seqs(first) == [5]  # from the shared reader
        await settle_one(store, job, Succeeded())

        result = [event.seq async for events in second for event in events]

    assert result == [5, 6]


async def test_fan_out_to_many_subscribers_yields_to_the_event_loop() -> None:
    """Other tasks of the loop run before the last subscriber has the event."""
    store = MemoryStore(clock=VirtualClock())
    client = Client(store, JsonCodec())
    hub = EventHub(lambda: client, client.codec, ServerConfig())
    job = await start_one(store)
    received: list[int] = []  # subscribers that have received the event

    async def listen(number: int) -> None:
        async with contextlib.aclosing(hub.follow(job.id, StreamFilter(after=3))) as events:
            await anext(events)
            received.append(number)

    count = 3 * FANOUT_BATCH
    readers = [asyncio.create_task(listen(number)) for number in range(count)]
    while sum(len(channel.subscribers) for channel in hub._channels.values()) < count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await append_records(store, job, log_record(1, "for all"))
    counts = []
    while len(received) < count:
        await asyncio.sleep(0)
        counts.append(len(received))
    await asyncio.gather(*readers)
    assert any(0 < number_received < count for number_received in counts)
