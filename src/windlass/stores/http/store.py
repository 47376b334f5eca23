"""A Windlass server as a store: every verb is one request, as `windlass.stores.rpc` writes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.decisions import transition
from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus
from windlass.core.decisions.transition import (
    Answer,
    CancelRequest,
    Checkpoint,
    Signal,
    Status,
    Transition,
)
from windlass.core.errors import InvalidArgumentError, RequestError
from windlass.core.event import Event
from windlass.core.job import row
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.core.job.failure import Failures
from windlass.core.job.lease import Claim, Extended, Lease, check_lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.query.diagnosis import Why
from windlass.core.query.job_query import Count, Page, Query
from windlass.core.records import Entry, Put, PutAnswer, check_keys
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
from windlass.stores import rpc
from windlass.stores.http.combined_calls import Together
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.split_calls import Parcels
from windlass.stores.http.tail import tail
from windlass.stores.http.transport import Line, Server

Item = TypeVar("Item")


class HttpStore(Store):
    """A handle on the jobs behind a server. What is wrong by itself is refused before it is sent.

    A server may serve many at once; it decides what the key may do, and whose jobs it sees.
    """

    def __init__(self, config: HttpConfig, *, _server: Server | None = None) -> None:
        self._server = _server or Server(config)
        self._line = Line(self._server)
        self._parcels = Parcels(self._line)
        self._enqueue = Together(partial(self._parcels.enqueue, together=False))
        self._apply = Together(partial(self._parcels.answers, "apply"))
        self._record = Together(partial(self._parcels.answers, "record"))
        self._extend = Together(self._extended)
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

    async def hello(self) -> rpc.Hello:
        """What the server says of itself, and of who asks."""
        return await self._line.hello()

    async def why(self, job_id: UUID) -> Why:
        """By the server, which sees all that surrounds the job, whatever the key may read."""
        response = await self._line.call("why", rpc.why_asked().dump(job_id=job_id))
        answer: Why = rpc.why_answered().hear(response.content)["answer"]
        return answer

    async def rotate(self) -> None:
        """By the server: the keys that it signs with do not leave it."""
        rpc.done().hear((await self._line.call("rotate", b"{}")).content)

    def twin(self) -> HttpStore:
        return HttpStore(self._server.config, _server=self._server)

    async def close(self) -> None:
        for gathered in (self._enqueue, self._apply, self._record, self._extend):
            await gathered.finish()
        await self._line.close()

    async def _ask(self, verb: str, **arguments: Any) -> Any:
        response = await self._line.call(verb, rpc.asked(verb).dump(**arguments))
        return rpc.hear(verb, response.content)

    async def _each(
        self,
        items: Sequence[Item],
        check: Callable[[Item], None],
        send: Callable[[list[Item]], Awaitable[list[Answer]]],
    ) -> list[Answer]:
        """An answer for each item; one that is wrong is refused here, and is not sent."""
        errors = [_error(check, item) for item in items]
        good = [one for one, error in zip(items, errors, strict=True) if error is None]
        told = iter(await send(good))
        return [
            next(told) if error is None else Answer(Status.REFUSED, error=error) for error in errors
        ]

    # -- putting in

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        errors = [_error(row.check, new) for new in jobs]
        first = next((error for error in errors if error is not None), None)
        if together and first is not None:
            return [Enqueued(EnqueueStatus.REFUSED, new, error=first) for new in jobs]
        good = [new for new, error in zip(jobs, errors, strict=True) if error is None]
        send = partial(self._parcels.enqueue, together=True) if together else self._enqueue
        told = iter(await send(good))
        return [
            next(told) if error is None else Enqueued(EnqueueStatus.REFUSED, new, error=error)
            for new, error in zip(jobs, errors, strict=True)
        ]

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        if not any(limit for _, limit in claim.queues):
            return []
        response = await self._line.call("claim", rpc.asked("claim").dump(claim=claim))
        self._news = response.headers.get(rpc.NEWS_HEADER)
        rows: list[JobRow] = rpc.hear("claim", response.content)
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        check_lease(seconds)
        return await self._extend([(lease, seconds) for lease in leases])

    async def _extended(self, asked: Sequence[tuple[Lease, float]]) -> list[Extended]:
        """One request for each length that is asked for."""
        found: dict[int, Extended] = {}
        for seconds in dict.fromkeys(length for _, length in asked):
            places = [place for place, (_, length) in enumerate(asked) if length == seconds]
            leases = [asked[place][0] for place in places]
            answers = await self._ask("extend", leases=leases, seconds=seconds)
            found |= zip(places, answers, strict=True)
        return [found[place] for place in range(len(asked))]

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        async def send(good: list[Transition]) -> list[Answer]:
            return await self._apply([rpc.sendable_wish(one) for one in good])

        return await self._each(transitions, transition.check, send)

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        return await self._each(
            sayings, lambda one: transition.check_records(one.records), self._record
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """One request after the other, each as long as the server lets it last."""
        if self._news is None:
            return True  # before the first claim, anything may be there
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        while (left := end - clock()) > 0:
            body = rpc.asked("wait").dump(queues=queues, timeout=left)
            headers = {rpc.NEWS_HEADER: self._news}
            response = await self._line.last("wait", body, left, headers)
            if rpc.hear("wait", response.content):
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
        return await self._each(
            requests, transition.check_cancel, partial(self._parcels.answers, "cancel")
        )

    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        return await self._each(
            signals, transition.check_signal, partial(self._parcels.answers, "signal")
        )

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

    async def count(self, query: Query) -> Count:
        count: Count = await self._ask("count", query=query)
        return count

    async def stats(self) -> Mapping[str, QueueStats]:
        stats: Mapping[str, QueueStats] = await self._ask("stats")
        return stats

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        found: Failures = await self._ask(
            "failures", since=since, limit=limit, owner=owner, team=team
        )
        return found

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

    async def edges(self, ids: Sequence[UUID], most: int | None = None) -> list[Edges]:
        found: list[Edges] = await self._ask("edges", ids=ids, most=most) if ids else []
        return found

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        found: list[FlowStats | None] = (
            await self._ask("flows", ids=ids, owner=owner, team=team) if ids else []
        )
        return found

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        page: FlowPage = await self._ask(
            "newest_flows", limit=limit, before=before, owner=owner, team=team
        )
        return page

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
