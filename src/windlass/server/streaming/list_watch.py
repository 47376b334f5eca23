"""Lists that are watched: where each job on one stands, now and whenever that changes.

Of a job only the newest is told; a reader that is slow misses what was in between, no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from uuid import UUID

from windlass.client import Client
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import Query
from windlass.server.streaming.event_format import dumped, message

AT_ONCE = 4  # lists that are looked at: fewer than the connections that a store opens


class Watch:
    """Looks at one list again and again, for all who watch it.

    Waits for: its interval, and its turn. Guarantees: each watcher gets the newest snapshot of each
    job on the list, and the last one of a job that left it. Stops: with the last watcher.
    """

    def __init__(
        self, client: Callable[[], Client], query: Query, every: float, turns: asyncio.Semaphore
    ) -> None:
        self._client = client
        self._query = query
        self._every = every
        self._turns = turns
        self._known: dict[UUID, str] = {}
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self.looked = False
        self.error: BaseException | None = None

    def join(self, name: str | None) -> Watcher:
        watcher = Watcher(self, self._known, name)
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self.error = None
            self._task = asyncio.create_task(self._run())
        return watcher

    def leave(self, watcher: Watcher) -> bool:
        """Whether nobody is left."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
        return not self._watchers

    async def _run(self) -> None:
        try:
            while True:
                async with self._turns:
                    await self._look()
                await asyncio.sleep(self._every)
        except Exception as error:  # noqa: BLE001 - it is for the watchers to tell
            self.error = error
            self._tell({})

    async def _look(self) -> None:
        store = self._client().store
        page = await store.find(self._query)
        now = {row.id: snapshot(row, listed=True) for row in page.rows}
        news = {id_: said for id_, said in now.items() if self._known.get(id_) != said}
        left = [id_ for id_ in self._known if id_ not in now]
        for id_, row in zip(left, await store.get(left), strict=True):
            news[id_] = gone(id_) if row is None else snapshot(row, listed=False)
        self._known = now
        if news or not self.looked:
            self.looked = True
            self._tell(news)

    def _tell(self, news: Mapping[UUID, str]) -> None:
        for watcher in self._watchers:
            watcher.tell(news)


class Watcher:
    """What one who watches a list has still to be told: of each job, the newest.

    With a name for the list, each message has it, and one says when all of the list was told.
    """

    def __init__(self, watch: Watch, known: Mapping[UUID, str], name: str | None) -> None:
        self._watch = watch
        self._news = dict(known)
        self._named = "" if name is None else dumped({"list": name})[1:-1]
        self._begins = name is not None
        self._woken = asyncio.Event()

    def tell(self, news: Mapping[UUID, str]) -> None:
        self._news |= news
        self._woken.set()

    async def next(self) -> bytes:
        while not self._news and not (self._begins and self._watch.looked):
            if self._watch.error is not None:
                raise self._watch.error
            self._woken.clear()
            await self._woken.wait()
        news, self._news = self._news, {}
        pieces = [message("snapshot", self._of_list(said)) for said in news.values()]
        if self._begins and self._watch.looked:
            self._begins = False
            pieces.append(message("whole", f"{{{self._named}}}"))
        return b"".join(pieces)

    def _of_list(self, said: str) -> str:
        return f"{{{self._named},{said[1:]}" if self._named else said


class Watches:
    """The lists that are watched in this process, each by one reader, a few of them at a time.

    Who watches a thousand lists learns of each later, and nobody else notices.
    """

    def __init__(self, client: Callable[[], Client], every: float) -> None:
        self._client = client
        self._every = every
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._watches: dict[Query, Watch] = {}

    async def snapshots(self, query: Query, name: str | None = None) -> AsyncGenerator[bytes, None]:
        """Where the jobs of the first page of this search stand, now and whenever that changes."""
        query = replace(query, cursor=None, bare=True)
        watch = self._watches.get(query)
        if watch is None:
            watch = Watch(self._client, query, self._every, self._turns)
            self._watches[query] = watch
        watcher = watch.join(name)
        try:
            while True:
                yield await watcher.next()
        finally:
            if watch.leave(watcher) and self._watches.get(query) is watch:
                del self._watches[query]


def snapshot(row: JobRow, *, listed: bool) -> str:
    facts = {"id": str(row.id), "seq": row.seq, "state": row.state.value, "percent": row.percent}
    more = {"task": row.task, "queue": row.queue, "stage": row.stage, "phase": row.phase}
    return dumped(facts | more | {"listed": listed})


def gone(job_id: UUID) -> str:
    """Of a job that was deleted."""
    return dumped({"id": str(job_id), "state": None, "listed": False})
