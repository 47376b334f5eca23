"""A server at work: the app that it serves, its doorkeeper, its streams; and one visit to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol
from uuid import UUID

from fastapi import Depends, Path, Request

from windlass.client import Client, EnqueueOptions
from windlass.core.codec import Codec
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.errors import NotFoundError
from windlass.core.job.row import JobRow, NewJob
from windlass.schedules import Schedules
from windlass.server.auth.audit import Audit
from windlass.server.auth.authenticator import Caller, Doorkeeper
from windlass.server.config import ServerConfig
from windlass.server.remote.wakeups import News
from windlass.server.streaming.access_recheck import Welcome
from windlass.server.streaming.hub import Hub
from windlass.server.streaming.list_watch import Watches
from windlass.task_spec import Registry, TaskSpec
from windlass.worker.hooks import Kit


class Home(Protocol):
    """What a server needs of the app that it serves."""

    @property
    def codec(self) -> Codec: ...
    @property
    def tasks(self) -> Registry: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def kit(self) -> Kit: ...
    @property
    def hosted(self) -> int: ...
    def client(self) -> Client: ...
    def prepare(
        self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions
    ) -> NewJob: ...
    async def aenqueue_each(self, jobs: list[NewJob]) -> list[Enqueued]: ...


class Site:
    def __init__(self, app: Home, config: ServerConfig) -> None:
        self.app = app
        self.config = config
        self.hub = Hub(app.client, app.codec, config)
        self.watches = Watches(app.client, config.look)
        self.shown: dict[str, float] = {}  # workers elsewhere, and when they were last written down
        self.news = News(lambda: app.client().store)
        self.door = Doorkeeper(lambda: app.client().store, config)
        self.signing = self.door.signing
        self.welcome = Welcome(self.door.still)

    async def close(self) -> None:
        """End what lasts, in order: whoever waits or reads goes on elsewhere."""
        self.hub.close()
        self.welcome.close()
        await self.news.close()


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, by somebody who was let in."""

    site: Site
    caller: Caller

    @property
    def app(self) -> Home:
        return self.site.app

    @property
    def client(self) -> Client:
        return self.site.app.client()

    async def job(self, job_id: UUID) -> JobRow:
        """The job, if there is one that the caller sees: another's is as good as none."""
        [row] = await self.jobs([job_id])
        return row

    async def jobs(self, ids: Sequence[UUID]) -> list[JobRow]:
        """All of these, or the first that is not there."""
        rows = await self.client.store.get(ids)
        return [self.seen(job_id, row) for job_id, row in zip(ids, rows, strict=True)]

    def seen(self, job_id: UUID, row: JobRow | None) -> JobRow:
        if row is None or not self.caller.sees(row):
            raise NotFoundError(f"no job {job_id}")
        return row

    @contextlib.contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        """In the block the request waits for something; the event says that it is to wait no more.

        That is when the server stops, or the caller would not be let in again.
        """
        with (
            self.site.hub.long_poll(self.caller.key_id) as ending,
            self.site.welcome.reading(self.caller, ending),
        ):
            yield ending

    async def record(self, action: str, target: str) -> None:
        """Note down what is about to be done, so that nothing is done without a note."""
        await Audit(self.client.store).note(self.caller.key_id, self.caller.name, action, target)


async def _visit(request: Request) -> Visit:  # async, or it would run on a thread
    visit: Visit = request.state.visit
    return visit


Here = Annotated[Visit, Depends(_visit)]
Id = Annotated[UUID, Path(alias="id")]
