"""State of a server, and the context of one request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol
from uuid import UUID

from fastapi import Depends, Path, Request

from windlass.client import Client
from windlass.core.codec import Codec
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.errors import NotFoundError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.options import EnqueueOptions
from windlass.schedules import Schedules
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.authenticator import Authenticator
from windlass.server.auth.caller import Caller
from windlass.server.config import ServerConfig
from windlass.server.remote.store_wakeups import StoreWakeups
from windlass.server.streaming.access_recheck import AccessRecheck
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.list_watch import ListWatches
from windlass.task_spec import Registry, TaskSpec
from windlass.worker.app_parts import AppParts


class ServedApp(Protocol):
    """The interface that a server needs of its app."""

    @property
    def codec(self) -> Codec: ...
    @property
    def tasks(self) -> Registry: ...
    @property
    def schedules(self) -> Schedules: ...
    @property
    def parts(self) -> AppParts: ...
    @property
    def running_workers(self) -> int: ...
    def client(self) -> Client: ...
    def prepare(
        self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions
    ) -> NewJob: ...
    async def aenqueue_each(self, jobs: list[NewJob]) -> list[EnqueueResult]: ...


class ServerContext:
    """The parts that all requests of a server share."""

    def __init__(self, app: ServedApp, config: ServerConfig) -> None:
        self.app = app
        self.config = config
        self.hub = EventHub(app.client, app.codec, config)
        self.list_watches = ListWatches(app.client, config.list_poll_interval)
        self.workers_seen: dict[str, float] = {}  # remote workers, and when each was last stored
        self.wakeups = StoreWakeups(lambda: app.client().store)
        self.authenticator = Authenticator(lambda: app.client().store, config)
        self.token_signer = self.authenticator.token_signer
        self.access_recheck = AccessRecheck(self.authenticator.still_authorized)

    async def close(self) -> None:
        """End event streams and long polls; clients continue at another server."""
        self.hub.close()
        self.access_recheck.close()
        await self.wakeups.close()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One authorized request."""

    server: ServerContext
    caller: Caller

    @property
    def app(self) -> ServedApp:
        return self.server.app

    @property
    def client(self) -> Client:
        return self.server.app.client()

    async def job(self, job_id: UUID) -> JobRow:
        """Return the job, or raise NotFoundError if it is missing or not visible to the caller."""
        [row] = await self.jobs([job_id])
        return row

    async def jobs(self, ids: Sequence[UUID]) -> list[JobRow]:
        """Return all of these jobs, or raise NotFoundError for the first that is missing."""
        rows = await self.client.store.get(ids)
        return [self.visible(job_id, row) for job_id, row in zip(ids, rows, strict=True)]

    def visible(self, job_id: UUID, row: JobRow | None) -> JobRow:
        if row is None or not self.caller.can_see(row):
            raise NotFoundError(f"no job {job_id}")
        return row

    @contextlib.contextmanager
    def long_poll(self) -> Iterator[asyncio.Event]:
        """Count the request as a long poll. The event is set when it must stop waiting.

        It is set when the server shuts down, or when the caller loses access.
        """
        with (
            self.server.hub.long_poll(self.caller.key_id) as stop_event,
            self.server.access_recheck.track(self.caller, stop_event),
        ):
            yield stop_event

    async def audit(self, action: str, target: str) -> None:
        """Add an audit entry. Call it before the action, so that no action lacks an entry."""
        log = AuditLog(self.client.store)
        await log.append(self.caller.key_id, self.caller.name, action, target)


async def _request_context(request: Request) -> RequestContext:  # async, or it runs on a thread
    context: RequestContext = request.state.context
    return context


Ctx = Annotated[RequestContext, Depends(_request_context)]
PathId = Annotated[UUID, Path(alias="id", description="Id of the job or flow.")]
