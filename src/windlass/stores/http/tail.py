"""Following a job's log over connections that break.

Waits for: the next message of a stream. Guarantees: every event beyond `after`, once and in order,
with a percentage that never falls, until the final one. Stops: with that, with a job that is gone,
with a key that is refused, or when reconnecting has failed as often as it may. A crash leaves a
reader with the number of its last event, to go on from.
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
from windlass.stores import rpc
from windlass.stores.http.errors import lost
from windlass.stores.http.transport import Line

log = logging.getLogger("windlass.stores")
SILENCE = 2.5  # intervals of keepalives without a word: the connection is dead
_NO_MORE = 204
_KEEPALIVE = ":"  # a comment has no name; it says that the server is there
_PERCENT = ("progressPct", "percent")


class Sequel:
    """What of a stream is new: each number once, rising without gaps, and progress with them."""

    def __init__(self, after: int) -> None:
        self.last = after
        self.ended = False
        self._percent = 0

    def take(self, event: Event) -> Event | None:
        """The event, if it is the next one; None for one that was had before.

        One that comes too early says that others are lost: the stream is broken.
        """
        resync = event.type is EventType.RESYNC
        if event.seq <= self.last and not (resync and event.seq == self.last):
            log.warning("event %s of job %s came again", event.seq, event.job_id)
            return None
        if event.seq != self.last + 1 and not resync:
            raise StoreUnavailableError(
                f"event {event.seq} of job {event.job_id} came after {self.last}"
            )
        self.last, self.ended = event.seq, event.final
        return self._risen(event)

    def _risen(self, event: Event) -> Event:
        for name in _PERCENT:
            given = event.data.get(name)
            if isinstance(given, int) and given < self._percent:
                log.warning("job %s went back to %s %%; kept", event.job_id, given)
                event = replace(event, data={**event.data, name: self._percent})
            elif isinstance(given, int):
                self._percent = given
        return event


async def tail(line: Line, job_id: UUID, after: int) -> AsyncIterator[Event]:
    """As the contract says: all events above `after`, then live ones, until the final one."""
    config = line.server.config
    sequel, pauses = Sequel(max(0, after)), list(config.reconnect)
    while True:
        try:
            async with aclosing(_stream(line, job_id, sequel.last)) as events:
                async for told in events:  # the last of them, too: so the stream is read whole
                    pauses = list(config.reconnect)
                    if told is not None and (event := sequel.take(told)) is not None:
                        yield event
        except (_Over, NotFoundError):
            return
        except StoreUnavailableError as error:
            if line.closed or not (pauses or sequel.ended):
                raise
            log.info("the stream of job %s broke: %s", job_id, error)
        else:
            if not (pauses or sequel.ended):
                raise StoreUnavailableError(
                    f"the server at {config.base} ends the stream of job {job_id} again and again"
                )
        if sequel.ended:
            return
        await config.sleep(pauses.pop(0))


class _Over(Exception):  # noqa: N818 - no error
    """All was told, and nothing will follow."""


async def _stream(line: Line, job_id: UUID, after: int) -> AsyncGenerator[Event | None, None]:
    """One connection's worth; its end says nothing of the job's. None: the server is there."""
    body = rpc.tail_asked().dump(job_id=job_id, after=after)
    async with line.stream("tail", body) as response:
        if response.status_code == _NO_MORE:
            raise _Over
        async with aclosing(_messages(line, response)) as messages:
            async for name, data in messages:
                if name == _KEEPALIVE:
                    yield None
                elif name == rpc.EVENT:
                    event: Event = rpc.told_event().hear(data)["event"]
                    yield event
                elif name == "error":
                    raise StoreUnavailableError(f"the stream failed: {data.decode()[:300]}")


async def _messages(
    line: Line, response: httpx.Response
) -> AsyncGenerator[tuple[str, bytes], None]:
    """Server-sent events: the name and the data of each."""
    interval = float(response.headers.get(rpc.KEEPALIVE_HEADER, "10"))
    rest, chunks = b"", response.aiter_bytes()
    while True:
        try:
            async with asyncio.timeout(SILENCE * interval):
                rest += await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            why = httpx.ReadError(f"no sign of life for {SILENCE * interval:g} s")
            raise lost(line.server.config, why) from why
        *whole, rest = rest.split(b"\n\n")
        for one in whole:
            fields = dict(part.partition(b": ")[::2] for part in one.split(b"\n"))
            if b"data" in fields:
                yield fields.get(b"event", b"").decode(), fields[b"data"]
            elif one.startswith(b": keepalive"):
                yield _KEEPALIVE, b""
