"""HTTP store: each method is one request, encoded by `windlass.stores.wire_format`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    Checkpoint,
    Status,
    Transition,
    check_records,
    check_request,
)
from windlass.core.diagnosis import Diagnosis
from windlass.core.errors import InvalidArgumentError, RequestError
from windlass.core.event import Event
from windlass.core.job.dependency import Edges
from windlass.core.job.lease import Claim, ExtendResult, Lease, check_lease
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import Entry, Put, PutResult, check_keys
from windlass.store import (
    AttemptRecords,
    Capabilities,
    EventPage,
    Pruned,
    Retention,
    Store,
)
from windlass.stores import wire_format
from windlass.stores.http.call_coalescer import CallCoalescer
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.event_stream import tail
from windlass.stores.http.insights import HttpInsights
from windlass.stores.http.request_splitter import RequestSplitter
from windlass.stores.http.transport import ServerInfo, Transport

Item = TypeVar("Item")


class HttpStore(Store):
    """Handle on the jobs of a server. Invalid items are refused before they are sent.

    The server enforces the permissions of the key, and which jobs it can see.
    """

    def __init__(self, config: HttpConfig, *, _server: ServerInfo | None = None) -> None:
        self._server = _server or ServerInfo(config)
        self._transport = Transport(self._server)
        self._splitter = RequestSplitter(self._transport)
        self._enqueue = CallCoalescer(partial(self._splitter.enqueue, atomic=False))
        self._apply = CallCoalescer(partial(self._splitter.send, "apply"))
        self._record = CallCoalescer(partial(self._splitter.send, "record"))
        self._extend = CallCoalescer(self._extend_batch)
        self._wakeup_cursor: str | None = None  # from the response to the last claim

    def __repr__(self) -> str:
        return f"HttpStore({self._server.config.base!r})"

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the server. A large call is split, so its items are not atomic."""
        capabilities = self._server.fetch_hello().capabilities
        return replace(capabilities, transactional=False, atomic_batch=False)

    @property
    def insights(self) -> HttpInsights:
        return HttpInsights(self._call)

    # -- the handle

    async def migrate(self) -> Sequence[str]:
        """Check the server, which runs its own migrations; raise if any are pending."""
        await self.ping()
        return []

    async def ping(self) -> Instant:
        now: Instant = await self._call("ping")
        return now

    async def hello(self) -> wire_format.Hello:
        """Return the properties of the server and the identity of the key."""
        return await self._transport.hello()

    async def why(self, job_id: UUID) -> Diagnosis:
        """Diagnose a job on the server, which also reads data that the key may not read."""
        response = await self._transport.call("why", wire_format.why_request().dump(job_id=job_id))
        diagnosis: Diagnosis = wire_format.why_response().load_response(response.content)["result"]
        return diagnosis

    async def rotate(self) -> None:
        """Rotate the signing key on the server; it never leaves the server."""
        wire_format.empty_response().load_response(
            (await self._transport.call("rotate", b"{}")).content
        )

    def twin(self) -> HttpStore:
        return HttpStore(self._server.config, _server=self._server)

    async def close(self) -> None:
        for calls in (self._enqueue, self._apply, self._record, self._extend):
            await calls.finish()
        await self._transport.close()

    async def _call(self, method: str, **arguments: Any) -> Any:
        response = await self._transport.call(
            method, wire_format.request_schema(method).dump(**arguments)
        )
        return wire_format.decode_response(method, response.content)

    async def _send_valid(
        self,
        items: Sequence[Item],
        check: Callable[[Item], None],
        send: Callable[[list[Item]], Awaitable[list[ApplyResult]]],
    ) -> list[ApplyResult]:
        """Send the valid items; refuse the others here. Returns one result per item."""
        errors = [_validation_error(check, item) for item in items]
        valid = [item for item, error in zip(items, errors, strict=True) if error is None]
        results = iter(await send(valid))
        return [
            next(results) if error is None else ApplyResult(Status.REFUSED, error=error)
            for error in errors
        ]

    # -- enqueue

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        errors = [_validation_error(check_new_job, new) for new in jobs]
        first = next((error for error in errors if error is not None), None)
        if atomic and first is not None:
            return [EnqueueResult(EnqueueStatus.REFUSED, new, error=first) for new in jobs]
        valid = [new for new, error in zip(jobs, errors, strict=True) if error is None]
        send = partial(self._splitter.enqueue, atomic=True) if atomic else self._enqueue
        results = iter(await send(valid))
        return [
            next(results)
            if error is None
            else EnqueueResult(EnqueueStatus.REFUSED, new, error=error)
            for new, error in zip(jobs, errors, strict=True)
        ]

    # -- running

    async def claim(self, claim: Claim) -> list[JobRow]:
        if not any(limit for _, limit in claim.queues):
            return []
        response = await self._transport.call(
            "claim", wire_format.request_schema("claim").dump(claim=claim)
        )
        self._wakeup_cursor = response.headers.get(wire_format.WAKEUPS_HEADER)
        rows: list[JobRow] = wire_format.decode_response("claim", response.content)
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        check_lease(seconds)
        return await self._extend([(lease, seconds) for lease in leases])

    async def _extend_batch(self, items: Sequence[tuple[Lease, float]]) -> list[ExtendResult]:
        """Extend leases with one request per distinct duration."""
        results: dict[int, ExtendResult] = {}
        for seconds in dict.fromkeys(duration for _, duration in items):
            indexes = [i for i, (_, duration) in enumerate(items) if duration == seconds]
            leases = [items[i][0] for i in indexes]
            extended = await self._call("extend", leases=leases, seconds=seconds)
            results |= zip(indexes, extended, strict=True)
        return [results[i] for i in range(len(items))]

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        """Send transitions together with those of concurrent calls, and other requests alone.

        A cancel or a signal may wait for a job that a transaction has locked.
        """
        only_transitions = all(isinstance(request, Transition) for request in requests)
        send_items = self._apply if only_transitions else partial(self._splitter.send, "apply")

        async def send(valid: list[ApplyRequest]) -> list[ApplyResult]:
            return await send_items([wire_format.sendable_request(request) for request in valid])

        return await self._send_valid(requests, check_request, send)

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        return await self._send_valid(
            attempt_records, lambda entry: check_records(entry.records), self._record
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Long-poll the server, in requests of its maximum duration."""
        if self._wakeup_cursor is None:
            return True  # before the first claim there is no cursor
        clock = asyncio.get_running_loop().time
        end = clock() + timeout
        while (left := end - clock()) > 0:
            body = wire_format.request_schema("wait").dump(queues=queues, timeout=left)
            headers = {wire_format.WAKEUPS_HEADER: self._wakeup_cursor}
            response = await self._transport.long_poll("wait", body, left, headers)
            if wire_format.decode_response("wait", response.content):
                return True
        return False

    # -- maintenance

    async def due(self, limit: int) -> list[JobRow]:
        rows: list[JobRow] = await self._call("due", limit=limit)
        return rows

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        pruned: Pruned = await self._call("prune", retention=retention, limit=limit)
        return pruned

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        results: list[ApplyResult] = await self._call("delete", ids=ids, owner=owner) if ids else []
        return results

    # -- reading

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        rows: list[JobRow | None] = await self._call("get", ids=ids, owner=owner) if ids else []
        return rows

    async def find(self, query: JobQuery) -> Page:
        page: Page = await self._call("find", query=query)
        return page

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        page: EventPage | None = await self._call("events", job_id=job_id, after=after, limit=limit)
        return page

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return tail(self._transport, job_id, after)

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        checkpoints: list[Mapping[str, Checkpoint]] = (
            await self._call("checkpoints", ids=ids) if ids else []
        )
        return checkpoints

    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        edges: list[Edges] = await self._call("edges", ids=ids, limit=limit) if ids else []
        return edges

    # -- records

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        return await self._splitter.send_strict("put_records", puts)

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        check_keys(kind, keys)
        entries: list[Entry | None] = (
            await self._call("get_records", kind=kind, keys=keys) if keys else []
        )
        return entries

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        entries: list[Entry] = await self._call("list_records", kind=kind, after=after, limit=limit)
        return entries

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        check_keys(kind, keys)
        if keys:
            await self._call("delete_records", kind=kind, keys=keys)


def _validation_error(check: Callable[[Item], None], item: Item) -> RequestError | None:
    """Validate one item, so that the other items can be sent without it."""
    try:
        check(item)
    except RequestError as error:
        return error
    except (TypeError, AttributeError) as error:  # a type that the contract does not allow
        return InvalidArgumentError(f"a value has the wrong type: {error}")
    return None
