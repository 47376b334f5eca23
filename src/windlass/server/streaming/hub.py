"""Live events of jobs: one reader per followed job in this process, shared by all its streams.

A new stream first reads the log from the store, at its own speed, up to the position of the shared
reader. From then on it receives the reader's lines through a bounded buffer. A stream whose buffer
overflows continues from the store: it misses no event, and delays no other stream.
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
from windlass.server.streaming.event_format import EventLine, StreamFormatter
from windlass.server.streaming.quota import StreamQuota
from windlass.server.streaming.replay import Replay
from windlass.server.streaming.shutdown import call_on_stop_signal

FANOUT_BATCH = 32  # subscribers that receive a line in one iteration of the event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFilter:
    """The cursor of a stream, and the events it selects. The final event is always selected."""

    after: int = 0
    since: Instant | None = None
    types: frozenset[EventType] = frozenset()

    def matches(self, line: EventLine) -> bool:
        if line.always_sent:
            return True
        return (not self.types or line.type in self.types) and (
            self.since is None or line.at >= self.since
        )


class Subscriber:
    """The buffer of one stream. `overflowed` means that lines are missing from it."""

    def __init__(self, channel: JobChannel, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._lines: list[EventLine] = []
        self._wakeup = asyncio.Event()
        self.overflowed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.unsubscribe(self)

    def put(self, line: EventLine) -> None:
        if self.overflowed:
            return
        if len(self._lines) >= self._limit:
            self._lines.clear()
            self.overflowed = True
        else:
            self._lines.append(line)
        self._wakeup.set()

    def wake(self) -> None:
        self._wakeup.set()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the shared reader, if there is one."""
        return self._channel.error

    async def next(self) -> list[EventLine]:
        """Wait for lines; return none after an overflow, or when the shared reader has ended."""
        while not self._lines:
            if self.overflowed or self._channel.ended:
                return []
            self._wakeup.clear()
            await self._wakeup.wait()
        lines, self._lines = self._lines, []
        return lines


class JobChannel:
    """Reads one job's log after `last`, and sends each line to all subscribers.

    Waits for: the next event. Guarantees: every subscriber receives all events read after it
    subscribed, in order. Stops: with the final event, with the last subscriber, or with a store
    error, which every subscriber then receives. A crash leaves nothing behind: clients reconnect.
    """

    def __init__(self, client: Client, codec: Codec, job_id: UUID, last: int) -> None:
        self.last = last
        self.error: BaseException | None = None
        self.subscribers: set[Subscriber] = set()
        self._job_id = job_id
        self._formatter = StreamFormatter(client.store, codec, job_id, last)
        self._task = asyncio.create_task(self._read(client))

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def _read(self, client: Client) -> None:
        try:
            async for event in client.events(self._job_id, self.last):
                line = await self._formatter.format(event)
                self.last = event.seq
                await self._fan_out(line)
        except Exception as error:  # noqa: BLE001 - the subscribers raise it
            self.error = error
        finally:
            asyncio.get_running_loop().call_soon(self._wake_all)  # when the task is done

    async def _fan_out(self, line: EventLine) -> None:
        """Send the line in batches, so that lines of other jobs are not delayed.

        A subscriber that joins in between has read the line from the store.
        """
        for number, subscriber in enumerate(list(self.subscribers), 1):
            subscriber.put(line)
            if number % FANOUT_BATCH == 0:
                await asyncio.sleep(0)

    def _wake_all(self) -> None:
        for subscriber in self.subscribers:
            subscriber.wake()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)
        if not self.subscribers:
            self._task.cancel()


class EventHub:
    """All event streams and long polls of this process."""

    def __init__(self, client: Callable[[], Client], codec: Codec, config: ServerConfig) -> None:
        self._client = client
        self._codec = codec
        self._config = config
        self._replay = Replay(client, codec)
        self._channels: dict[UUID, JobChannel] = {}
        self._endings: set[asyncio.Event] = set()
        self.closed = False  # the server is shutting down
        self.watch_signals = True  # mounted in another server, which may not call `close` in time
        self.close_callbacks: list[Callable[[], None]] = []
        self.open_streams = 0
        self.quota = StreamQuota(config.max_streams, config.max_streams_per_key)

    @contextlib.contextmanager
    def stream(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """Count an open stream during the block. The event is set when it must end.

        Check the quota before: here the response has started, and cannot be rejected.
        """
        with self._tracked(key_id) as ending:
            self.open_streams += 1
            try:
                yield ending
            finally:
                self.open_streams -= 1

    @contextlib.contextmanager
    def long_poll(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """Like `stream` for a request that waits; raise ApiError when the quota is used up."""
        self.quota.check(key_id)
        with self._tracked(key_id) as ending:
            yield ending

    @contextlib.contextmanager
    def _tracked(self, key_id: str | None) -> Iterator[asyncio.Event]:
        if self.watch_signals:
            self.watch_signals = False  # install the handlers once
            call_on_stop_signal(self.close)
        ending = asyncio.Event()
        if self.closed:
            ending.set()
        self._endings.add(ending)
        try:
            with self.quota.hold(key_id):
                yield ending
        finally:
            self._endings.discard(ending)

    def close(self) -> None:
        """End all streams between two messages; clients reconnect to another server."""
        self.closed = True
        for ending in self._endings:
            ending.set()
        for callback in self.close_callbacks:
            callback()

    @property
    def long_polls(self) -> int:
        """Number of requests that wait and are no streams."""
        return self.quota.in_use - self.open_streams

    @property
    def followed_jobs(self) -> int:
        """Number of jobs with a shared reader."""
        return sum(not channel.ended for channel in self._channels.values())

    def _subscribe(self, job_id: UUID, position: int) -> Subscriber | None:
        """Subscribe at this position; None if the shared reader is ahead: read the store first."""
        channel = self._channels.get(job_id)
        if channel is None or channel.ended or not channel.subscribers:
            self._channels = {id_: one for id_, one in self._channels.items() if not one.ended}
            channel = JobChannel(self._client(), self._codec, job_id, position)
            self._channels[job_id] = channel
        elif channel.last > position:
            return None
        subscriber = Subscriber(channel, self._config.stream_buffer)
        channel.subscribers.add(subscriber)
        return subscriber

    async def follow(
        self, job_id: UUID, selection: StreamFilter
    ) -> AsyncGenerator[list[EventLine], None]:
        """Yield each selected line once, until the final one of the job, or until its deletion.

        Available lines are yielded together.
        """
        position = selection.after
        with contextlib.suppress(NotFoundError):
            while True:
                for source in (self._replay.stored_lines, self._live_lines):
                    async with contextlib.aclosing(source(job_id, position)) as batches:
                        async for lines in batches:
                            position, final = lines[-1].seq, lines[-1].final
                            selected = [line for line in lines if selection.matches(line)]
                            lines.clear()  # frees them while the consumer waits
                            if selected:
                                yield selected
                            if final:
                                return

    async def _live_lines(
        self, job_id: UUID, position: int
    ) -> AsyncGenerator[list[EventLine], None]:
        """Yield new lines of the shared reader while the stream keeps up with it."""
        subscriber = self._subscribe(job_id, position)
        if subscriber is None:
            return
        with subscriber:
            while lines := await subscriber.next():
                if new := [line for line in lines if line.seq > position]:
                    yield new
        if subscriber.error is not None and not subscriber.overflowed:
            raise subscriber.error
