"""Live tail of a job's events over HTTP, with reconnects.

Yields every event after `after`, once and in order, with progress that never decreases. Ends with
the final event, or when the job is not found. Raises when the key is rejected, or when all
reconnects fail. A reader resumes from the number of its last event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from uuid import UUID

import httpx

from windlass.core.errors import NotFoundError, StoreUnavailableError
from windlass.core.event import Event, EventType
from windlass.stores import wire_format
from windlass.stores.http.errors import connection_error
from windlass.stores.http.transport import Transport

log = logging.getLogger("windlass.stores")
MAX_SILENT_INTERVALS = 2.5  # keepalive intervals without data: the connection is dead
_NO_CONTENT = 204
_KEEPALIVE = ":"  # an SSE comment, which the server sends as a keepalive
_PERCENT = ("progressPct", "percent")


class EventSequence:
    """Filters a stream: each event once, without gaps, with progress that never decreases."""

    def __init__(self, after: int) -> None:
        self.last = after
        self.ended = False
        self._percent = 0

    def accept(self, event: Event) -> Event | None:
        """Return the event if it is the next one; None for a duplicate.

        Raises StoreUnavailableError on a gap: events were lost, so the stream is broken.
        """
        resync = event.type is EventType.RESYNC
        if event.seq <= self.last and not (resync and event.seq == self.last):
            log.warning("duplicate event %s of job %s ignored", event.seq, event.job_id)
            return None
        if event.seq != self.last + 1 and not resync:
            raise StoreUnavailableError(
                f"gap in the events of job {event.job_id}: {event.seq} follows {self.last}"
            )
        self.last, self.ended = event.seq, event.final
        return self._with_monotonic_progress(event)

    def _with_monotonic_progress(self, event: Event) -> Event:
        for name in _PERCENT:
            percent = event.data.get(name)
            if isinstance(percent, int) and percent < self._percent:
                log.warning("progress of job %s fell to %s %%; ignored", event.job_id, percent)
                event = replace(event, data={**event.data, name: self._percent})
            elif isinstance(percent, int):
                self._percent = percent
        return event


async def tail(transport: Transport, job_id: UUID, after: int) -> AsyncIterator[Event]:
    """Yield the events above `after`, then new ones, until the final event."""
    config = transport.server.config
    sequence, delays = EventSequence(max(0, after)), list(config.reconnect_delays)
    while True:
        try:
            async with aclosing(_stream(transport, job_id, sequence.last)) as events:
                async for received in events:  # also past the final event, to the end of the body
                    delays = list(config.reconnect_delays)
                    if received is not None and (event := sequence.accept(received)) is not None:
                        yield event
        except (_NoMoreEvents, NotFoundError):
            return
        except StoreUnavailableError as error:
            if transport.closed or not (delays or sequence.ended):
                raise
            log.info("event stream of job %s was interrupted: %s", job_id, error)
        else:
            if not (delays or sequence.ended):
                raise StoreUnavailableError(
                    f"the server at {config.base} repeatedly ends the event stream of job {job_id}"
                )
        if sequence.ended:
            return
        await config.sleep(delays.pop(0))


class _NoMoreEvents(Exception):  # noqa: N818 - not an error
    """The job has no further events."""


async def _stream(
    transport: Transport, job_id: UUID, after: int
) -> AsyncGenerator[Event | None, None]:
    """Yield the events of one connection, and None for each keepalive.

    The end of a connection does not mean the end of the job.
    """
    body = wire_format.tail_request().dump(job_id=job_id, after=after)
    async with transport.stream("tail", body) as response:
        if response.status_code == _NO_CONTENT:
            raise _NoMoreEvents
        async with aclosing(_messages(transport, response)) as messages:
            async for name, data in messages:
                if name == _KEEPALIVE:
                    yield None
                elif name == wire_format.EVENT:
                    event: Event = wire_format.event_message().load_response(data)["event"]
                    yield event
                elif name == "error":
                    raise StoreUnavailableError(f"the event stream failed: {data.decode()[:300]}")


async def _messages(
    transport: Transport, response: httpx.Response
) -> AsyncGenerator[tuple[str, bytes], None]:
    """Yield the name and the data of each server-sent event."""
    interval = float(response.headers.get(wire_format.KEEPALIVE_HEADER, "10"))
    rest, chunks = b"", response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(MAX_SILENT_INTERVALS * interval):
                rest += await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            silent = httpx.ReadError(f"no data for {MAX_SILENT_INTERVALS * interval:g} s")
            raise connection_error(transport.server.config, silent) from silent
        *messages, rest = rest.split(b"\n\n")
        for message in messages:
            fields = dict(part.partition(b": ")[::2] for part in message.split(b"\n"))
            if b"data" in fields:
                yield fields.get(b"event", b"").decode(), fields[b"data"]
            elif message.startswith(b": keepalive"):
                yield _KEEPALIVE, b""
