"""Many jobs on one stream: the logs of some that are named, or snapshots of a list.

The logs of named jobs are whole: each is followed like one job's, from a cursor that the reader
holds. Of a list, only where each job stands now is told, the newest word for each; a reader that is
slow misses what was in between, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from uuid import UUID

from windlass.client import Client
from windlass.core.job import JobRow
from windlass.core.query import Query
from windlass.server.lines import dumped, message
from windlass.server.streams import Hub, Wanted

TOGETHER = 32 * 1024  # bytes that go out at once: about what a connection holds
WAITING = 64  # lines that wait for one reader, all jobs together


async def one(hub: Hub, job_id: UUID, wanted: Wanted) -> AsyncGenerator[bytes, None]:
    """The log of one job; its lines carry cursors. Those that are there go out together."""
    async with contextlib.aclosing(hub.follow(job_id, wanted)) as found:
        async for lines in found:
            pieces = _joined([line.single for line in lines])
            lines.clear()  # who takes nothing holds no more than what is to be sent
            while pieces:
                yield pieces.popleft()


def _joined(lines: list[bytes]) -> deque[bytes]:
    """As few pieces as may be."""
    pieces: deque[bytes] = deque()
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size > TOGETHER:
            pieces.append(b"".join(piece))
            piece, size = [], 0
    if piece:
        pieces.append(b"".join(piece))
    return pieces


async def several(hub: Hub, named: Mapping[UUID, Wanted]) -> AsyncGenerator[bytes, None]:
    """The logs of these jobs, each in its order, until all have ended."""
    lines: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue(WAITING)

    async def pass_on(job_id: UUID, wanted: Wanted) -> None:
        try:
            async with contextlib.aclosing(hub.follow(job_id, wanted)) as found:
                async for told in found:
                    for line in told:
                        await lines.put(line.many)
        except Exception as error:  # noqa: BLE001 - it ends the stream, and is told there
            await lines.put(error)
        else:
            await lines.put(None)

    work = [asyncio.create_task(pass_on(*each)) for each in named.items()]
    try:
        left = len(work)
        while left:
            said = await lines.get()
            if isinstance(said, BaseException):
                raise said
            if said is None:
                left -= 1
            else:
                yield said
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)


class Watch:
    """Looks at one list again and again, for all who watch it.

    Waits for: its interval. Guarantees: each watcher gets the newest snapshot of each job on the
    list, and the last one of a job that left it. Stops: with the last watcher.
    """

    def __init__(self, client: Callable[[], Client], query: Query, every: float) -> None:
        self._client = client
        self._query = query
        self._every = every
        self._known: dict[UUID, bytes] = {}
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self.error: BaseException | None = None

    def join(self) -> Watcher:
        watcher = Watcher(self, self._known)
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
                await self._look()
                await asyncio.sleep(self._every)
        except Exception as error:  # noqa: BLE001 - it is for the watchers to tell
            self.error = error
            self._tell({})

    async def _look(self) -> None:
        store = self._client().store
        page = await store.find(self._query)
        now = {row.id: snapshot(row) for row in page.rows}
        news = {id_: said for id_, said in now.items() if self._known.get(id_) != said}
        left = [id_ for id_ in self._known if id_ not in now]
        for id_, row in zip(left, await store.get(left), strict=True):
            news[id_] = gone(id_) if row is None else snapshot(row)
        self._known = now
        if news:
            self._tell(news)

    def _tell(self, news: Mapping[UUID, bytes]) -> None:
        for watcher in self._watchers:
            watcher.tell(news)


class Watcher:
    """What one who watches a list has still to be told: of each job, the newest."""

    def __init__(self, watch: Watch, known: Mapping[UUID, bytes]) -> None:
        self._watch = watch
        self._news = dict(known)
        self._woken = asyncio.Event()
        if known:
            self._woken.set()

    def tell(self, news: Mapping[UUID, bytes]) -> None:
        self._news |= news
        self._woken.set()

    async def next(self) -> bytes:
        while not self._news:
            if self._watch.error is not None:
                raise self._watch.error
            self._woken.clear()
            await self._woken.wait()
        news, self._news = self._news, {}
        return b"".join(news.values())


class Watches:
    """The lists that are watched in this process, each by one reader."""

    def __init__(self, client: Callable[[], Client], every: float) -> None:
        self._client = client
        self._every = every
        self._watches: dict[Query, Watch] = {}

    async def snapshots(self, query: Query) -> AsyncGenerator[bytes, None]:
        """Where the jobs of the first page of this search stand, now and whenever that changes."""
        query = replace(query, cursor=None)
        watch = self._watches.setdefault(query, Watch(self._client, query, self._every))
        watcher = watch.join()
        try:
            while True:
                yield await watcher.next()
        finally:
            if watch.leave(watcher) and self._watches.get(query) is watch:
                del self._watches[query]


def snapshot(row: JobRow) -> bytes:
    facts = {"id": str(row.id), "seq": row.seq, "state": row.state.value, "percent": row.percent}
    more = {"task": row.task, "queue": row.queue, "stage": row.stage, "phase": row.phase}
    return message("snapshot", dumped(facts | more))


def gone(job_id: UUID) -> bytes:
    """Of a job that was deleted."""
    return message("snapshot", dumped({"id": str(job_id), "state": None}))
