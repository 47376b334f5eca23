"""A Windlass server as a store: every verb is one request, as `windlass.stores.wire` writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from windlass.core import job, transition
from windlass.core.clock import Instant
from windlass.core.dependency import Edges, FlowStats
from windlass.core.enqueue import Enqueued, EnqueueStatus
from windlass.core.errors import InvalidArgumentError, RequestError
from windlass.core.event import Attempt, Event
from windlass.core.gate import GateStats
from windlass.core.job import JobRow, NewJob
from windlass.core.lease import Claim, Extended, Lease, check_lease
from windlass.core.query import Page, Query
from windlass.core.records import Entry, Put, PutAnswer, check_keys
from windlass.core.transition import (
    Answer,
    CancelRequest,
    Checkpoint,
    Signal,
    Status,
    Transition,
)
from windlass.store import (
    Capabilities,
    EventPage,
    Pruned,
    QueueStats,
    Retention,
    Rollup,
    Saying,
    Store,
)
from windlass.stores import wire
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.following import tail
from windlass.stores.http.line import Line, Server
from windlass.stores.http.parcels import Parcels

Item = TypeVar("Item")


class HttpStore(Store):
    """A handle on the jobs behind a server. What is wrong by itself is refused before it is sent.

    A server may serve many at once; it decides what the key may do, and whose jobs it sees.
    """

    def __init__(self, config: HttpConfig, *, _server: Server | None = None) -> None:
        self._server = _server or Server(config)
        self._line = Line(self._server)
        self._parcels = Parcels(self._line)
        self._news: str | None = None  # heard of before the last claim

    def __repr__(self) -> str:
        return f"HttpStore({self._server.config.base!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The server's. A large call goes in parts, so that its items may not come together."""
        known = self._server.ask().capabilities
        return replace(known, transactional=False, atomic_batch=False)

    # -- the handle

    async def migrate(self) -> Sequence[str]:
        """Nothing: the server's operator does that. Raises if it is still to be done."""
        await self.ping()
        return []

    async def ping(self) -> Instant:
        now: Instant = await self._ask("ping")
        return now

    async def hello(self) -> wire.Hello:
        """What the server says of itself, and of who asks."""
        return await self._line.hello()

    def twin(self) -> HttpStore:
        return HttpStore(self._server.config, _server=self._server)

    async def close(self) -> None:
        await self._line.close()

    async def _ask(self, verb: str, **arguments: Any) -> Any:
        response = await self._line.call(verb, wire.asked(verb).dump(**arguments))
        return wire.hear(verb, response.content)

    async def _each(
        self,
        verb: str,
        items: Sequence[Item],
        check: Callable[[Item], None],
        send: Callable[[Item], Item] = lambda item: item,
    ) -> list[Answer]:
        """An answer for each item; one that is wrong is refused here, and is not sent."""
        errors = [_error(check, item) for item in items]
        good = [send(one) for one, error in zip(items, errors, strict=True) if error is None]
        told = iter(await self._parcels.answers(verb, good))
        return [
            next(told) if error is None else Answer(Status.REFUSED, error=error) for error in errors
        ]

    # -- putting in

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        errors = [_error(job.check, new) for new in jobs]
        first = next((error for error in errors if error is not None), None)
        if together and first is not None:
            return [Enqueued(EnqueueStatus.REFUSED, new, error=first) for new in jobs]
        good = [new for new, error in zip(jobs, errors, strict=True) if error is None]
        told = iter(await self._parcels.enqueue(good, together=together))
        return [
            next(told) if error is None else Enqueued(EnqueueStatus.REFUSED, new, error=error)
            for new, error in zip(jobs, errors, strict=True)
        ]

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        if not any(limit for _, limit in claim.queues):
            return []
        response = await self._line.call("claim", wire.asked("claim").dump(claim=claim))
        self._news = response.headers.get(wire.NEWS_HEADER)
        rows: list[JobRow] = wire.hear("claim", response.content)
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        check_lease(seconds)
        if not leases:
            return []
        answers: list[Extended] = await self._ask("extend", leases=leases, seconds=seconds)
        return answers

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        return await self._each("apply", transitions, transition.check, wire.sendable_wish)

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        return await self._each(
            "record", sayings, lambda one: transition.check_records(one.records)
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """One request after the other, each as long as the server lets it last."""
        if self._news is None:
            return True  # before the first claim, anything may be there
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        while (left := end - clock()) > 0:
            body = wire.asked("wait").dump(queues=queues, timeout=left)
            headers = {wire.NEWS_HEADER: self._news}
            response = await self._line.last("wait", body, left, headers)
            if wire.hear("wait", response.content):
                return True
        return False

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        rows: list[JobRow] = await self._ask("due", limit=limit)
        return rows

    async def expired(self, limit: int) -> list[JobRow]:
        rows: list[JobRow] = await self._ask("expired", limit=limit)
        return rows

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        pruned: Pruned = await self._ask("prune", retention=retention, limit=limit)
        return pruned

    # -- operators

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        return await self._each("cancel", requests, transition.check_cancel)

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        return await self._each("signal", signals, transition.check_signal)

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[Answer]:
        answers: list[Answer] = await self._ask("delete", ids=ids, owner=owner) if ids else []
        return answers

    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        if queues:
            await self._ask("pause", queues=queues, paused=paused)

    # -- reading

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        rows: list[JobRow | None] = await self._ask("get", ids=ids, owner=owner) if ids else []
        return rows

    async def find(self, query: Query) -> Page:
        page: Page = await self._ask("find", query=query)
        return page

    async def stats(self) -> Mapping[str, QueueStats]:
        stats: Mapping[str, QueueStats] = await self._ask("stats")
        return stats

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        stats: list[GateStats] = await self._ask("gates", names=names) if names else []
        return stats

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        lines: list[Rollup] = await self._ask("rollups", since=since, until=until)
        return lines

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        page: EventPage | None = await self._ask("events", job_id=job_id, after=after, limit=limit)
        return page

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return tail(self._line, job_id, after)

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        found: list[Attempt] | None = await self._ask("attempts", job_id=job_id)
        return found

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        found: list[Mapping[str, Checkpoint]] = (
            await self._ask("checkpoints", ids=ids) if ids else []
        )
        return found

    # -- jobs that depend on jobs

    async def edges(self, ids: Sequence[UUID]) -> list[Edges]:
        found: list[Edges] = await self._ask("edges", ids=ids) if ids else []
        return found

    async def flows(self, ids: Sequence[UUID]) -> list[FlowStats | None]:
        found: list[FlowStats | None] = await self._ask("flows", ids=ids) if ids else []
        return found

    # -- small data

    async def put_records(self, puts: Sequence[Put]) -> list[PutAnswer]:
        return await self._parcels.items("put_records", puts)

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        check_keys(kind, keys)
        found: list[Entry | None] = (
            await self._ask("get_records", kind=kind, keys=keys) if keys else []
        )
        return found

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        found: list[Entry] = await self._ask("list_records", kind=kind, after=after, limit=limit)
        return found

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._ask("delete_records", kind=kind, keys=keys)


def _error(check: Callable[[Item], None], item: Item) -> RequestError | None:
    """What is wrong with it by itself, so that its neighbours can be sent without it."""
    try:
        check(item)
    except RequestError as error:
        return error
    except (TypeError, AttributeError) as error:  # of another type than the contract says
        return InvalidArgumentError(f"a value is of the wrong type: {error}")
    return None
