"""Client of a store: enqueue, read, wait for, cancel and retry jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from graphlib import TopologicalSorter
from operator import attrgetter
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant, from_datetime
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
from windlass.core.job.dependency import OnParent
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.new_job import CORRELATION_ID, NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, WAITING, State, Trigger
from windlass.core.query.drain_progress import DrainProgress
from windlass.core.query.job_query import MAX_PAGE, JobQuery
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
from windlass.task_spec import TaskSpec

BATCH = 1000  # jobs in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Options of one job. Durations are in seconds.

    id: id of the job, a UUID; repeating an enqueue with the same id is harmless
    queue: overrides the queue of the task
    priority: overrides the priority of the task; higher first
    delay: minimum time before the job runs
    run_at: earliest time at which the job runs; must have a time zone
    hold: store the job without queueing it, until `job.submit()`
    expires_in: fail the job with the code `expired` if it has not started after this time
    request_id: idempotency key: a repeat returns the same job; other arguments are a conflict
    unique_key: at most one active job of the task has this key; a second enqueue returns it
    debounce: with a unique key: replace a waiting job by the new one
    owner: owner of the job; request ids and unique keys are scoped by owner
    team: team of the job
    tags: tags for filtering
    headers: metadata such as trace context; child jobs inherit `correlation-id`
    depends_on: jobs, or their ids, that must succeed before this one runs
    on_parent: what happens if one of them did not succeed: `cancel`, `fail` or `run`
    flow_id: flow that the job belongs to; set by `app.flow()`
    limit_key: overrides the limit key of the task, used by limits per key and fairness
    """

    id: UUID | None = None
    queue: str | None = None
    priority: int | None = None
    delay: float = 0.0
    run_at: datetime | None = None
    hold: bool = False
    expires_in: float | None = None
    request_id: str | None = None
    unique_key: str | None = None
    debounce: bool = False
    owner: str = ""
    team: str | None = None
    tags: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    depends_on: tuple[UUID, ...] = ()
    on_parent: OnParent = OnParent.CANCEL
    flow_id: UUID | None = None
    limit_key: str | None = None


NO_OPTIONS = EnqueueOptions()
# Options that are fields of the job as they are; `Client.prepare` converts the others.
_COPIED = tuple(
    name
    for name in EnqueueOptions.__slots__
    if name not in {"id", "queue", "priority", "run_at", "limit_key"}
)
_copied = attrgetter(*_COPIED)
# Fields that a re-run copies from the row.
_RETRIED = {item.name for item in fields(NewJob)} & {item.name for item in fields(JobRow)}
_RETRIED -= {"id", "request_id", "digest", "expires_at", "retry_of"}


def _simple_job(task: TaskSpec, payload: bytes, limit_key: str | None) -> NewJob:
    """Build a job without options of its own: a fast path for bulk enqueues."""
    settings = task.options
    return NewJob(
        id=uuid7(),
        task=task.name,
        queue=settings.queue,
        payload=payload,
        priority=settings.priority,
        policy=settings.policy,
        lease=settings.lease,
        limit_key=limit_key,
    )


class Client:
    """Operations on jobs, through one store handle on its event loop."""

    def __init__(self, store: Store, codec: Codec | None = None) -> None:
        self.store = store
        self.codec: Codec = codec or JsonCodec()

    def prepare(
        self,
        task: TaskSpec,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: EnqueueOptions,
    ) -> NewJob:
        """Return the job of a call of the task; validates the arguments."""
        stored = task.signature.store(args, kwargs, options.depends_on)
        payload = self.codec.encode(stored, Purpose.PAYLOAD)
        limit_key = options.limit_key
        if limit_key is None and task.key is not None:
            limit_key = task.limit_key_of(args, kwargs)
        if options is NO_OPTIONS:
            return _simple_job(task, payload, limit_key)
        job_id = options.id or uuid7()
        settings = task.options
        keyed = options.request_id is not None or options.id is not None
        return NewJob(
            id=job_id,
            task=task.name,
            queue=options.queue or settings.queue,
            payload=payload,
            priority=settings.priority if options.priority is None else options.priority,
            run_at=from_datetime(options.run_at) if options.run_at else None,
            policy=settings.policy,
            lease=settings.lease,
            digest=self.codec.digest([task.name, stored]) if keyed else None,
            limit_key=limit_key,
            **dict(zip(_COPIED, _copied(options), strict=True)),
        )

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
        [result] = await self.store.cancel([request])
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
        [result] = await self.store.signal([SignalRequest(job_id=job_id, name=name, value=data)])
        if result.error is not None:
            raise result.error
        return _state(result.status, result.state, job_id, "signaled")

    # -- flows

    async def flow(
        self, flow_id: UUID, *, owner: str | None = None, team: str | None = None
    ) -> FlowStats:
        """Return the statistics of a flow, optionally only of jobs of an owner and a team."""
        [stats] = await self.store.flows([flow_id], owner, team)
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
            results = await self.store.cancel(requests[start : start + BATCH])
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
