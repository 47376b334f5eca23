"""Stored events of jobs, read in chunks that concurrent streams share.

Many clients may connect concurrently, and must not delay streams of other jobs.
Requests for the same chunk share one read and one encoding. Only a few chunks are read at a time,
in the order of the requests. So other work gets connections to the store between two reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from windlass.client import Client
from windlass.core.codec import Codec
from windlass.core.errors import NotFoundError
from windlass.core.event import Event
from windlass.server.streaming.event_encoder import EncodedEvent, EventEncoder, encode_event

# A client that does not read holds one chunk. So the first chunk is small; the following ones have
# as many events as fit into CHUNK_BYTES at the observed size.
FIRST_LIMIT, MAX_LIMIT = 8, 256
CHUNK_BYTES = 64 * 1024
MAX_READS = 4  # concurrent reads: fewer than the connections of a store
_Position: TypeAlias = tuple[UUID, int, int]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Consecutive events of a job; `complete` means that no more were stored at the read.

    `final` is the job's final event. It summarizes earlier ones, so each stream formats it itself.
    """

    events: list[EncodedEvent]
    final: Event | None
    complete: bool
    next_limit: int  # events of this size that fill the next chunk


class Replay:
    """Reads stored events for streams."""

    def __init__(self, client: Callable[[], Client], codec: Codec) -> None:
        self._client = client
        self._codec = codec
        self._slots = asyncio.Semaphore(MAX_READS)
        self._reads: dict[_Position, asyncio.Task[LogChunk]] = {}

    async def stored_events(
        self, job_id: UUID, position: int
    ) -> AsyncGenerator[list[EncodedEvent], None]:
        """Yield the events stored after this position."""
        encoder = EventEncoder(self._client().store, self._codec, job_id, position)
        limit = FIRST_LIMIT
        while True:
            chunk = await self._shared_read(job_id, position, limit)
            events = list(chunk.events)
            for event in events:
                encoder.collect(event)
            if chunk.final is not None:
                events.append(await encoder.encode(chunk.final))
            complete, limit = chunk.complete, chunk.next_limit
            del chunk  # a client that does not read must not hold it
            if events:
                position = events[-1].seq
                yield events
            if complete:
                return

    async def _shared_read(self, job_id: UUID, after: int, limit: int) -> LogChunk:
        """Read a chunk, or join a read in progress, which cancellation does not end."""
        key = (job_id, after, limit)
        task = self._reads.get(key)
        if task is None:
            task = self._reads[key] = asyncio.create_task(self._read(*key))
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    def _finished(self, key: _Position, task: asyncio.Task[LogChunk]) -> None:
        del self._reads[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: all waiting streams may be gone

    async def _read(self, job_id: UUID, after: int, limit: int) -> LogChunk:
        async with self._slots:
            page = await self._client().store.events(job_id, after, limit)
            if page is None:
                raise NotFoundError(f"job {job_id} was deleted, or is past retention")
            events: list[EncodedEvent] = []
            size = 0
            for stored in page.events:
                if stored.final:
                    return LogChunk(events, stored, complete=True, next_limit=limit)
                events.append(encode_event(stored, self._codec))
                size += len(events[-1].for_job_stream)
                if size > CHUNK_BYTES:
                    break
            complete = len(events) == len(page.events) < limit
            fitting = max(1, min(MAX_LIMIT, CHUNK_BYTES * len(events) // size)) if events else limit
            return LogChunk(events, None, complete, fitting)
