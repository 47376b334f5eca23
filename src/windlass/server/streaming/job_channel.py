"""Live events of one job: one reader of its log, and its subscribers."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from uuid import UUID

from windlass.client import Client
from windlass.core.codec import Codec
from windlass.server.streaming.event_encoder import EncodedEvent, EventEncoder

FANOUT_BATCH = 32  # subscribers that receive an event in one iteration of the event loop


class Subscriber:
    """The buffer of one stream. `overflowed` means that events are missing from it."""

    def __init__(self, channel: JobChannel, limit: int) -> None:
        self._channel = channel
        self._limit = limit
        self._events: list[EncodedEvent] = []
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

    def put(self, event: EncodedEvent) -> None:
        if self.overflowed:
            return
        if len(self._events) >= self._limit:
            self._events.clear()
            self.overflowed = True
        else:
            self._events.append(event)
        self._wakeup.set()

    def wake(self) -> None:
        self._wakeup.set()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the shared reader, if there is one."""
        return self._channel.error

    async def next(self) -> list[EncodedEvent]:
        """Wait for events; return none after an overflow, or when the shared reader has ended."""
        while not self._events:
            if self.overflowed or self._channel.ended:
                return []
            self._wakeup.clear()
            await self._wakeup.wait()
        events, self._events = self._events, []
        return events


class JobChannel:
    """Reads one job's log after `last`, and sends each event to all subscribers.

    Waits for: the next event. Guarantees: every subscriber receives all events read after it
    subscribed, in order. Stops: with the final event, with the last subscriber, or with a store
    error, which every subscriber then receives. A crash leaves nothing behind: clients reconnect.
    """

    def __init__(self, client: Client, codec: Codec, job_id: UUID, last: int) -> None:
        self.last = last
        self.error: BaseException | None = None
        self.subscribers: set[Subscriber] = set()
        self._job_id = job_id
        self._encoder = EventEncoder(client.store, codec, job_id, last)
        self._task = asyncio.create_task(self._read(client))

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def _read(self, client: Client) -> None:
        try:
            async for stored in client.events(self._job_id, self.last):
                event = await self._encoder.encode(stored)
                self.last = event.seq
                await self._fan_out(event)
        except Exception as error:  # noqa: BLE001 - the subscribers raise it
            self.error = error
        finally:
            asyncio.get_running_loop().call_soon(self._wake_all)  # when the task is done

    async def _fan_out(self, event: EncodedEvent) -> None:
        """Send the event in batches, so that events of other jobs are not delayed.

        A subscriber that joins in between has read the event from the store.
        """
        for number, subscriber in enumerate(list(self.subscribers), 1):
            subscriber.put(event)
            if number % FANOUT_BATCH == 0:
                await asyncio.sleep(0)

    def _wake_all(self) -> None:
        for subscriber in self.subscribers:
            subscriber.wake()

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)
        if not self.subscribers:
            self._task.cancel()
