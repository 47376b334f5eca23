"""Following jobs: one reader of each job's log in this process, for all who listen to it.

Who comes reads the log from the store, at their own pace, until they have seen as much as the
shared reader; from then on its lines are handed to them. Each has a bounded buffer. Who lets it
overflow reads on from the store: nothing is skipped, and nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from windlass.client import Client
from windlass.core.clock import Instant
from windlass.core.codec import Codec
from windlass.core.errors import NotFoundError
from windlass.core.event import EventType
from windlass.server.config import ServerConfig
from windlass.server.streaming.event_format import Line, Teller
from windlass.server.streaming.quota import Room
from windlass.server.streaming.replay import Replay
from windlass.server.streaming.shutdown import heed

TOGETHER = 32  # listeners that get a line in one turn of the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where somebody goes on from, and what they want to see. The last event always comes."""

    after: int = 0
    since: Instant | None = None
    types: frozenset[EventType] = frozenset()

    def takes(self, line: Line) -> bool:
        if line.always:
            return True
        return (not self.types or line.type in self.types) and (
            self.since is None or line.at >= self.since
        )


class Listener:
    """The buffer of one who listens. `lost` says that it overflowed: lines are missing from it."""

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._lines: list[Line] = []
        self._news = asyncio.Event()
        self.lost = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.leave(self)

    def put(self, line: Line) -> None:
        if self.lost:
            return
        if len(self._lines) >= self._limit:
            self._lines.clear()
            self.lost = True
        else:
            self._lines.append(line)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    @property
    def error(self) -> BaseException | None:
        """What ended the reader, if it was a fault."""
        return self._channel.error

    async def next(self) -> list[Line]:
        """What has come; nothing when it was lost, or when the reader has ended."""
        while not self._lines:
            if self.lost or self._channel.ended:
                return []
            self._news.clear()
            await self._news.wait()
        lines, self._lines = self._lines, []
        return lines


class Channel:
    """Reads one job's log from `last` on, and hands each line to all who listen.

    Waits for: the next event. Guarantees: every event beyond `last`, in order, to each listener
    that joined before it was read. Stops: with the last event, with the last listener, or with a
    store that fails, whose error every listener then gets. A crash leaves nothing: readers resume.
    """

    def __init__(self, client: Client, codec: Codec, job_id: UUID, last: int) -> None:
        self.last = last
        self.error: BaseException | None = None
        self.listeners: set[Listener] = set()
        self._job_id = job_id
        self._teller = Teller(client.store, codec, job_id, last)
        self._task = asyncio.create_task(self._read(client))

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def _read(self, client: Client) -> None:
        try:
            async for event in client.events(self._job_id, self.last):
                line = await self._teller.line(event)
                self.last = event.seq
                await self._hand_out(line)
        except Exception as error:  # noqa: BLE001 - it is for the listeners to tell
            self.error = error
        finally:
            asyncio.get_running_loop().call_soon(self._wake_all)  # when the task is done

    async def _hand_out(self, line: Line) -> None:
        """Some at a time: what others are to be told need not wait until all have it.

        Who joins meanwhile has read it from the store.
        """
        for number, listener in enumerate(list(self.listeners), 1):
            listener.put(line)
            if number % TOGETHER == 0:
                await asyncio.sleep(0)

    def _wake_all(self) -> None:
        for listener in self.listeners:
            listener.wake()

    def leave(self, listener: Listener) -> None:
        self.listeners.discard(listener)
        if not self.listeners:
            self._task.cancel()


class Hub:
    """All that is followed in this process."""

    def __init__(self, client: Callable[[], Client], codec: Codec, config: ServerConfig) -> None:
        self._client = client
        self._codec = codec
        self._config = config
        self._replay = Replay(client, codec)
        self._channels: dict[UUID, Channel] = {}
        self._endings: set[asyncio.Event] = set()
        self.closed = False  # the server is stopping
        self.guest = True  # it is somebody else's, who may not tell us
        self.at_close: list[Callable[[], None]] = []  # what else is to be done then
        self.open = 0  # how many streams there are
        self.room = Room(config.max_streams, config.max_streams_per_key)

    @contextlib.contextmanager
    def stream(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """In the block a stream is open; the event says that it is to end.

        Whether there is room was asked before: when this begins, it is too late to refuse.
        """
        with self._lasting(key_id) as ending:
            self.open += 1
            try:
                yield ending
            finally:
                self.open -= 1

    @contextlib.contextmanager
    def long_poll(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """The same for a request that only waits; where there is no room for it, it is refused."""
        self.room.check(key_id)
        with self._lasting(key_id) as ending:
            yield ending

    @contextlib.contextmanager
    def _lasting(self, key_id: str | None) -> Iterator[asyncio.Event]:
        if self.guest:
            self.guest = False  # once is enough
            heed(self.close)
        ending = asyncio.Event()
        if self.closed:
            ending.set()
        self._endings.add(ending)
        try:
            with self.room.place(key_id):
                yield ending
        finally:
            self._endings.discard(ending)

    def close(self) -> None:
        """End all streams, in order: whoever reads them goes on elsewhere."""
        self.closed = True
        for ending in self._endings:
            ending.set()
        for also in self.at_close:
            also()

    @property
    def waiting(self) -> int:
        """How many requests last that are no streams."""
        return self.room.taken - self.open

    @property
    def followed(self) -> int:
        """How many jobs have a reader."""
        return sum(not channel.ended for channel in self._channels.values())

    def _join(self, job_id: UUID, seen: int) -> Listener | None:
        """None for who has seen less than the shared reader: they have to read on first."""
        channel = self._channels.get(job_id)
        if channel is None or channel.ended or not channel.listeners:
            self._channels = {id_: one for id_, one in self._channels.items() if not one.ended}
            channel = Channel(self._client(), self._codec, job_id, seen)
            self._channels[job_id] = channel
        elif channel.last > seen:
            return None
        listener = Listener(channel, self._config.buffer)
        channel.listeners.add(listener)
        return listener

    async def follow(self, job_id: UUID, wanted: Wanted) -> AsyncGenerator[list[Line], None]:
        """Every line from there on, each once, until the last one of the job, or its deletion.

        They come as many at a time as there are.
        """
        seen = wanted.after
        with contextlib.suppress(NotFoundError):
            while True:
                for source in (self._replay.stored, self._live):
                    async with contextlib.aclosing(source(job_id, seen)) as found:
                        async for lines in found:
                            seen, over = lines[-1].seq, lines[-1].final
                            taken = [line for line in lines if wanted.takes(line)]
                            lines.clear()  # or they would be held here, for as long as one waits
                            if taken:
                                yield taken
                            if over:
                                return

    async def _live(self, job_id: UUID, seen: int) -> AsyncGenerator[list[Line], None]:
        """What comes, for who has seen all that the shared reader has, and keeps up with it."""
        listener = self._join(job_id, seen)
        if listener is None:
            return
        with listener:
            while lines := await listener.next():
                if new := [line for line in lines if line.seq > seen]:
                    yield new
        if listener.error is not None and not listener.lost:
            raise listener.error
