"""Feeds of event streams: the log of one job, or of many jobs together with lists.

Logs of named jobs are complete: each continues from a cursor that the client keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from uuid import UUID

from windlass.core.errors import NotFoundError
from windlass.server.problem_details import problem
from windlass.server.streaming.event_encoder import sse_message, to_json
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.stream_filter import StreamFilter

CHUNK_BYTES = 32 * 1024  # sent at once: about the send buffer of a connection
QUEUE_SIZE = 64  # messages that wait for one client, of all jobs and lists together
Feed = AsyncGenerator[bytes, None]


async def job_feed(hub: EventHub, job_id: UUID, stream_filter: StreamFilter) -> Feed:
    """Yield the log of one job, with cursors. Available events are sent together."""
    async with contextlib.aclosing(hub.follow(job_id, stream_filter)) as batches:
        async for events in batches:
            chunks = _joined([event.for_job_stream for event in events])
            events.clear()  # a client that does not read holds only unsent data
            while chunks:
                yield chunks.popleft()


def _joined(messages: list[bytes]) -> deque[bytes]:
    """Join messages into as few chunks as possible."""
    chunks: deque[bytes] = deque()
    chunk: list[bytes] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message)
        if size > CHUNK_BYTES:
            chunks.append(b"".join(chunk))
            chunk, size = [], 0
    if chunk:
        chunks.append(b"".join(chunk))
    return chunks


async def shared_job_feed(
    hub: EventHub, job_id: UUID, stream_filter: StreamFilter, *, report_errors: bool
) -> Feed:
    """Yield the log of one job among others; with `report_errors`, also its deletion."""
    final = False
    async with contextlib.aclosing(hub.follow(job_id, stream_filter)) as batches:
        async for events in batches:
            for event in events:
                final = event.final
                yield event.for_shared_stream
    if report_errors and not final:
        error = NotFoundError(f"job {job_id} was deleted, or is past retention")
        yield closed_message({"jobId": str(job_id)}, error)


def closed_message(member: Mapping[str, str], error: BaseException | None = None) -> bytes:
    """Format the end of one job or list on a shared stream, with its error if there is one."""
    found = None if error is None else problem(error).model_dump(exclude_none=True)
    return sse_message("closed", to_json({**member, "problem": found}))


async def merge(first: Sequence[bytes], feeds: Sequence[Feed]) -> Feed:
    """Yield `first`, then all feeds as their messages arrive, until all have ended."""
    queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(QUEUE_SIZE)

    async def forward(feed: Feed) -> None:
        try:
            async with contextlib.aclosing(feed):
                async for message in feed:
                    await queue.put(message)
        except Exception as error:  # noqa: BLE001 - raised below
            await queue.put(error)
        else:
            await queue.put(None)

    if first:
        yield b"".join(first)
    tasks = [asyncio.create_task(forward(feed)) for feed in feeds]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
