"""Watched job lists: a snapshot of each listed job, now and at each change.

Only the newest snapshot of a job is sent; a slow client may skip intermediate ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from uuid import UUID

from windlass.client import Client
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery
from windlass.server.streaming.event_encoder import sse_message, to_json

MAX_POLLS = 4  # concurrent reads of lists: fewer than the connections of a store


class ListWatch:
    """Polls one list for all its subscribers.

    Waits for: its interval, and a free slot. Guarantees: each subscriber gets the newest snapshot
    of each listed job, and a last one of a job that left the list. Stops: with the last subscriber.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        query: JobQuery,
        interval: float,
        slots: asyncio.Semaphore,
    ) -> None:
        self._client = client
        self._query = query
        self._interval = interval
        self._slots = slots
        self._snapshots: dict[UUID, str] = {}
        self._subscribers: set[ListSubscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self.polled = False
        self.error: BaseException | None = None

    def subscribe(self, name: str | None) -> ListSubscriber:
        subscriber = ListSubscriber(self, self._snapshots, name)
        self._subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self.error = None
            self._task = asyncio.create_task(self._run())
        return subscriber

    def unsubscribe(self, subscriber: ListSubscriber) -> bool:
        """Remove the subscriber; return whether it was the last."""
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._task is not None:
            self._task.cancel()
        return not self._subscribers

    async def _run(self) -> None:
        try:
            while True:
                async with self._slots:
                    await self._poll()
                await asyncio.sleep(self._interval)
        except Exception as error:  # noqa: BLE001 - the subscribers raise it
            self.error = error
            self._publish({})

    async def _poll(self) -> None:
        store = self._client().store
        page = await store.find(self._query)
        current = {row.id: snapshot_json(row, listed=True) for row in page.rows}
        changes = {id_: text for id_, text in current.items() if self._snapshots.get(id_) != text}
        left = [id_ for id_ in self._snapshots if id_ not in current]
        for id_, row in zip(left, await store.get(left), strict=True):
            changes[id_] = deletion_json(id_) if row is None else snapshot_json(row, listed=False)
        self._snapshots = current
        if changes or not self.polled:
            self.polled = True
            self._publish(changes)

    def _publish(self, changes: Mapping[UUID, str]) -> None:
        for subscriber in self._subscribers:
            subscriber.update(changes)


class ListSubscriber:
    """The unsent snapshots of one client of a list: the newest of each job.

    With a list name, each message has it, and a `loaded` message follows the first full list.
    """

    def __init__(self, watch: ListWatch, snapshots: Mapping[UUID, str], name: str | None) -> None:
        self._watch = watch
        self._unsent = dict(snapshots)
        self._name_field = "" if name is None else to_json({"list": name})[1:-1]
        self._loaded_due = name is not None
        self._wakeup = asyncio.Event()

    def update(self, changes: Mapping[UUID, str]) -> None:
        self._unsent |= changes
        self._wakeup.set()

    async def next(self) -> bytes:
        while not self._unsent and not (self._loaded_due and self._watch.polled):
            if self._watch.error is not None:
                raise self._watch.error
            self._wakeup.clear()
            await self._wakeup.wait()
        unsent, self._unsent = self._unsent, {}
        messages = [sse_message("snapshot", self._with_name(text)) for text in unsent.values()]
        if self._loaded_due and self._watch.polled:
            self._loaded_due = False
            messages.append(sse_message("loaded", f"{{{self._name_field}}}"))
        return b"".join(messages)

    def _with_name(self, text: str) -> str:
        return f"{{{self._name_field},{text[1:]}" if self._name_field else text


class ListWatches:
    """The watched lists of this process, each polled by one task, a few at a time.

    A client with a thousand lists gets slower updates, and does not delay other clients.
    """

    def __init__(self, client: Callable[[], Client], interval: float) -> None:
        self._client = client
        self._interval = interval
        self._slots = asyncio.Semaphore(MAX_POLLS)
        self._watches: dict[JobQuery, ListWatch] = {}

    async def snapshots(
        self, query: JobQuery, name: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield snapshots of the first page of a query's jobs, now and at each change."""
        query = replace(query, cursor=None, omit_payload=True)
        watch = self._watches.get(query)
        if watch is None:
            watch = ListWatch(self._client, query, self._interval, self._slots)
            self._watches[query] = watch
        subscriber = watch.subscribe(name)
        try:
            while True:
                yield await subscriber.next()
        finally:
            if watch.unsubscribe(subscriber) and self._watches.get(query) is watch:
                del self._watches[query]


def snapshot_json(row: JobRow, *, listed: bool) -> str:
    values = {"id": str(row.id), "seq": row.seq, "state": row.state.value, "percent": row.percent}
    more = {"task": row.task, "queue": row.queue, "stage": row.stage, "phase": row.phase}
    return to_json(values | more | {"listed": listed})


def deletion_json(job_id: UUID) -> str:
    return to_json({"id": str(job_id), "state": None, "listed": False})
