"""All event streams of this process; streams of one job share one reader.

A new stream first reads the log from the store, at its own speed, up to the position of the shared
reader. From then on it receives the reader's events through a bounded buffer. A stream whose buffer
overflows continues from the store: it misses no event, and delays no other stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from uuid import UUID

from windlass.client import Client
from windlass.core.codec import Codec
from windlass.core.errors import NotFoundError
from windlass.server.config import ServerConfig
from windlass.server.streaming.event_encoder import EncodedEvent
from windlass.server.streaming.job_channel import JobChannel, Subscriber
from windlass.server.streaming.quota import StreamQuota
from windlass.server.streaming.replay import Replay
from windlass.server.streaming.stop_signals import call_on_stop_signal
from windlass.server.streaming.stream_filter import StreamFilter


class EventHub:
    """All event streams and long polls of this process."""

    def __init__(self, client: Callable[[], Client], codec: Codec, config: ServerConfig) -> None:
        self._client = client
        self._codec = codec
        self._config = config
        self._replay = Replay(client, codec)
        self._channels: dict[UUID, JobChannel] = {}
        self._stop_events: set[asyncio.Event] = set()
        self.closed = False  # the server is shutting down
        self.watch_signals = True  # another server that mounts the app may not call `close` in time
        self.close_callbacks: list[Callable[[], None]] = []
        self.open_streams = 0
        self.quota = StreamQuota(config.max_streams, config.max_streams_per_key)

    @contextlib.contextmanager
    def stream(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """Count an open stream during the block. The event is set when it must end.

        Check the quota before: here the response has started, and cannot be rejected.
        """
        with self._tracked(key_id) as stop_event:
            self.open_streams += 1
            try:
                yield stop_event
            finally:
                self.open_streams -= 1

    @contextlib.contextmanager
    def long_poll(self, key_id: str | None) -> Iterator[asyncio.Event]:
        """Like `stream` for a request that waits; raise ApiError when the quota is used up."""
        self.quota.check(key_id)
        with self._tracked(key_id) as stop_event:
            yield stop_event

    @contextlib.contextmanager
    def _tracked(self, key_id: str | None) -> Iterator[asyncio.Event]:
        if self.watch_signals:
            self.watch_signals = False  # install the handlers once
            call_on_stop_signal(self.close)
        stop_event = asyncio.Event()
        if self.closed:
            stop_event.set()
        self._stop_events.add(stop_event)
        try:
            with self.quota.hold(key_id):
                yield stop_event
        finally:
            self._stop_events.discard(stop_event)

    def close(self) -> None:
        """End all streams between two messages; clients reconnect to another server."""
        self.closed = True
        for stop_event in self._stop_events:
            stop_event.set()
        for callback in self.close_callbacks:
            callback()

    @property
    def long_polls(self) -> int:
        """Number of open long polls."""
        return self.quota.in_use - self.open_streams

    @property
    def followed_jobs(self) -> int:
        """Number of jobs with a shared reader."""
        return sum(not channel.ended for channel in self._channels.values())

    def _subscribe(self, job_id: UUID, position: int) -> Subscriber | None:
        """Subscribe at this position; None if the shared reader is ahead: read the store first."""
        channel = self._channels.get(job_id)
        if channel is None or channel.ended or not channel.subscribers:
            self._channels = {
                id_: channel for id_, channel in self._channels.items() if not channel.ended
            }
            channel = JobChannel(self._client(), self._codec, job_id, position)
            self._channels[job_id] = channel
        elif channel.last > position:
            return None
        subscriber = Subscriber(channel, self._config.stream_buffer)
        channel.subscribers.add(subscriber)
        return subscriber

    async def follow(
        self, job_id: UUID, stream_filter: StreamFilter
    ) -> AsyncGenerator[list[EncodedEvent], None]:
        """Yield each selected event once, until the final one of the job, or until its deletion.

        Available events are yielded together.
        """
        position = stream_filter.after
        with contextlib.suppress(NotFoundError):
            while True:
                for source in (self._replay.stored_events, self._live_events):
                    async with contextlib.aclosing(source(job_id, position)) as batches:
                        async for events in batches:
                            position, final = events[-1].seq, events[-1].final
                            selected = [event for event in events if stream_filter.matches(event)]
                            events.clear()  # frees them while the consumer waits
                            if selected:
                                yield selected
                            if final:
                                return

    async def _live_events(
        self, job_id: UUID, position: int
    ) -> AsyncGenerator[list[EncodedEvent], None]:
        """Yield new events of the shared reader while the stream keeps up with it."""
        subscriber = self._subscribe(job_id, position)
        if subscriber is None:
            return
        with subscriber:
            while events := await subscriber.next():
                if new := [event for event in events if event.seq > position]:
                    yield new
        if subscriber.error is not None and not subscriber.overflowed:
            raise subscriber.error
