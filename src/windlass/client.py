"""Client of a store: enqueue, read, wait for, cancel and retry jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import fields, replace
from graphlib import TopologicalSorter
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.codec import Codec, JsonCodec, Purpose
from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.decisions.transition import (
    CancelRequest,
    SignalRequest,
    Status,
    Transition,
    submit,
)
from windlass.core.diagnosis import Diagnosis, diagnose
from windlass.core.errors import ConflictError, NotFoundError, RequestError, StoreError
from windlass.core.event import Event
from windlass.core.ids import uuid7
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.new_job import CORRELATION_ID, NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, WAITING, State, Trigger
from windlass.core.query.drain_progress import DrainProgress
from windlass.core.query.job_query import MAX_PAGE, JobQuery
from windlass.core.versioned_record import PAUSED, Put
from windlass.core.worker_presence import (
    WORKER,
    LiveWorker,
    Readiness,
    store_problem,
    unresponsive_problems,
)
from windlass.insights.failure_groups import FailureGroups, group_failures
from windlass.insights.observations import observe
from windlass.insights.queue_drain import watch_drain
from windlass.insights.queue_overview import Queue, queue_overview
from windlass.insights.retry_parents import current_parents
from windlass.store import ServerStore, Store

BATCH = 1000  # jobs in one call


# Fields that a re-run copies from the row.
_RETRIED = {item.name for item in fields(NewJob)} & {item.name for item in fields(JobRow)}
_RETRIED -= {"id", "request_id", "digest", "expires_at", "retry_of"}


class Client:
    """Operations on jobs, through one store handle on its event loop."""

    def __init__(self, store: Store, codec: Codec | None = None) -> None:
        self.store = store
        self.codec: Codec = codec or JsonCodec()

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        return await self.store.enqueue(jobs, atomic=atomic)

    async def get(self, job_id: UUID) -> JobRow:
        [row] = await self.store.get([job_id])
        if row is None:
            raise NotFoundError(f"no job {job_id}")
        return row

    async def submit(self, job_id: UUID) -> State:
        """Queue a held job."""
        [result] = await self.store.apply([submit(job_id)])
        return _state(result.status, result.state, job_id, "submitted")

    async def cancel(
        self, job_id: UUID, *, by: str | None = None, reason: str | None = None
    ) -> State:
        """Cancel a job. Returns `canceled`, or `running`: then it ends as canceled later."""
        request = CancelRequest(job_id=job_id, by=by, reason=reason)
        [result] = await self.store.apply([request])
        if result.error is not None:
            raise result.error
        return _state(result.status, result.state, job_id, "canceled")

    async def retry(self, job_id: UUID) -> EnqueueResult:
        """Re-run a finished job from the start, as a new job.

        Returns an unfinished retry of it, if there is one.
        """
        return await self._rerun(await self.get(job_id), resume=False)

    async def resume(self, job_id: UUID) -> EnqueueResult:
        """Re-run a finished job as a new job that continues after its last completed step."""
        row = await self.get(job_id)
        if not row.final:
            raise ConflictError(f"job {job_id} is {row.state}; only a finished job can be resumed")
        if row.state is State.SUCCEEDED:
            raise ConflictError(
                f"job {job_id} succeeded, so there is nothing to resume; retry it instead"
            )
        if not row.can_resume:
            raise ConflictError(
                f"job {job_id} has no completed step to resume from; retry it instead"
            )
        return await self._rerun(row, resume=True)

    async def _rerun(self, row: JobRow, *, resume: bool) -> EnqueueResult:
        [parents] = await current_parents(self.store, self.codec, [row])
        new = replace(retry_request(row, resume=resume), depends_on=parents)
        [result] = await self.enqueue([new])
        accepted_row(result)
        return result

    async def signal(self, job_id: UUID, name: str, value: Any = None) -> State:
        """Send a signal to a job; `ctx.wait_for(name)` returns its value."""
        data = self.codec.encode(value, Purpose.CHECKPOINT)
        [result] = await self.store.apply([SignalRequest(job_id=job_id, name=name, value=data)])
        if result.error is not None:
            raise result.error
        return _state(result.status, result.state, job_id, "signaled")

    # -- flows

    async def flow(
        self, flow_id: UUID, *, owner: str | None = None, team: str | None = None
    ) -> FlowStats:
        """Return the statistics of a flow, optionally only of jobs of an owner and a team."""
        [stats] = await self.store.insights.flows([flow_id], owner, team)
        if stats is None:
            raise NotFoundError(f"no flow {flow_id}")
        return stats

    async def flow_jobs(
        self, flow_id: UUID, states: frozenset[State] = frozenset()
    ) -> AsyncIterator[JobRow]:
        """Yield its jobs in these states (by default all), the newest first."""
        query = JobQuery(flow_id=flow_id, states=states, limit=1000)
        while True:
            page = await self.store.find(query)
            for row in page.rows:
                yield row
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    async def cancel_flow(
        self, flow_id: UUID, *, by: str | None = None, reason: str | None = None
    ) -> int:
        """Cancel its unfinished jobs, children first; return their number."""
        await self.flow(flow_id)
        rows = [row async for row in self.flow_jobs(flow_id, ACTIVE)]
        requests = [CancelRequest(job_id=row.id, by=by, reason=reason) for row in rows]
        done = 0
        for start in range(0, len(requests), BATCH):
            results = await self.store.apply(requests[start : start + BATCH])
            done += sum(result.applied for result in results)
        return done

    async def retry_flow(
        self,
        flow_id: UUID,
        *,
        resume: bool,
        redact: Callable[[EnqueueResult], EnqueueResult] = lambda result: result,
    ) -> list[JobRow]:
        """Re-run the failed and canceled jobs; succeeded ones keep their results.

        `redact` removes what the caller may not see from each result.
        """
        await self.flow(flow_id)
        rows = [row async for row in self.flow_jobs(flow_id) if row.retried_as is None]
        busy = [row for row in rows if not row.final]
        if busy:
            raise ConflictError(
                f"flow {flow_id} has {len(busy)} unfinished jobs; wait for them, or cancel the flow"
            )
        lost = [row for row in reversed(rows) if row.state is not State.SUCCEEDED]
        if not lost:
            raise ConflictError(f"flow {flow_id} succeeded: no job to re-run")
        new_ids = {row.id: uuid7() for row in lost}
        known = {row.id: row for row in lost}
        above = dict(zip(known, await current_parents(self.store, self.codec, lost), strict=True))
        order = TopologicalSorter({id_: set(above[id_]) & new_ids.keys() for id_ in new_ids})
        jobs = [
            replace(
                retry_request(known[id_], resume=resume and known[id_].can_resume),
                id=new_ids[id_],
                depends_on=tuple(new_ids.get(parent, parent) for parent in above[id_]),
            )
            for id_ in order.static_order()
        ]
        return [accepted_row(redact(result)) for result in await self.enqueue(jobs, atomic=True)]

    async def wait(self, job_id: UUID) -> JobRow:
        """Wait until the job has ended, and return it."""
        async for _ in self.events(job_id):
            pass
        return await self.get(job_id)

    async def why(self, job_id: UUID) -> Diagnosis:
        """Return all reasons why a job is not running, the most important first."""
        if isinstance(self.store, ServerStore):
            return await self.store.why(job_id)
        row = await self.get(job_id)
        workers = [] if row.final else await self.workers()
        return diagnose(row, await observe(self.store, row, workers))

    async def workers(self) -> list[LiveWorker]:
        """List the running workers by name."""
        found: list[LiveWorker] = []
        after = ""
        while entries := await self.store.list_records(WORKER, after):
            found += [LiveWorker.decode(entry.value) for entry in entries]
            after = entries[-1].key
        return found

    async def queues(self) -> list[Queue]:
        """List the queues with depth, age and recent rates."""
        return await queue_overview(self.store)

    async def failures(
        self, since: Instant, *, owner: str | None = None, team: str | None = None
    ) -> FailureGroups:
        """Group the jobs that failed since then by task and error, the most frequent first."""
        return await group_failures(self.store, self.codec, since, owner=owner, team=team)

    def drain(self, *names: str) -> AsyncIterator[DrainProgress]:
        """Wait until these queues are empty: `async for progress in client.drain("media"): …`.

        Running workers process the jobs; this only waits.
        """
        return watch_drain(self.store, names)

    async def clear(self, queue: str, *, reason: str | None = None) -> int:
        """Cancel all waiting jobs of a queue, but no running ones; return their number."""
        canceled = 0
        cursor: str | None = None
        query = JobQuery(states=WAITING, queues=frozenset({queue}), limit=MAX_PAGE)
        while True:
            page = await self.store.find(replace(query, cursor=cursor))
            transitions = [
                Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CANCEL, reason=reason)
                for row in page.rows
            ]
            canceled += sum(result.applied for result in await self.store.apply(transitions))
            if (cursor := page.cursor) is None:
                return canceled

    async def pause(self, queues: Sequence[str], *, paused: bool = True) -> None:
        """Pause or resume these queues. Running jobs are not affected."""
        if paused:
            await self.store.put_records([Put(kind=PAUSED, key=name, value=b"") for name in queues])
        else:
            await self.store.delete_records(PAUSED, queues)

    async def readiness(self, *, host: str | None = None, timeout: float = 5.0) -> Readiness:
        """Check that the store responds and no worker (on `host`, if given) is unresponsive."""
        try:
            async with asyncio.timeout(timeout):
                await self.store.ping()
                workers = await self.workers()
        except (StoreError, TimeoutError) as error:
            return Readiness((store_problem(error, timeout),))
        return Readiness(unresponsive_problems(one for one in workers if host in {None, one.host}))

    def events(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return self.store.tail(job_id, after)


def retry_request(row: JobRow, *, resume: bool = False) -> NewJob:
    """Return a new job that re-runs a finished one, without its request id and expiry."""
    values: dict[str, Any] = {name: getattr(row, name) for name in _RETRIED}
    values["headers"] = {**row.headers, CORRELATION_ID: row.correlation_id}
    return NewJob(id=uuid7(), lease=row.lease_seconds, retry_of=row.id, resume=resume, **values)


def check_accepted(result: EnqueueResult) -> None:
    """Raise the error of an enqueue that was not accepted."""
    if result.status is EnqueueStatus.CONFLICT or result.status is EnqueueStatus.REFUSED:
        raise result.error or ConflictError(f"job {result.new.id} was refused")


def accepted_row(result: EnqueueResult) -> JobRow:
    """Return the row of an accepted enqueue; raise its error otherwise."""
    check_accepted(result)
    row = result.row
    assert row is not None
    return row


def _state(status: Status, state: State | None, job_id: UUID, verb: str) -> State:
    if status is Status.MISSING or state is None:
        raise NotFoundError(f"no job {job_id}")
    if status is not Status.APPLIED:
        error: RequestError = ConflictError(f"job {job_id} is {state} and cannot be {verb}")
        raise error
    return state
