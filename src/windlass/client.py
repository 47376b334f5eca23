"""The use cases of somebody who has jobs to be done: enqueue, look, wait, cancel, retry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from graphlib import TopologicalSorter
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant, from_datetime
from windlass.core.codec import Codec, JsonCodec, Purpose
from windlass.core.decisions import outcome
from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus
from windlass.core.decisions.transition import CancelRequest, Signal, Status
from windlass.core.errors import ConflictError, NotFoundError, RequestError, StoreError
from windlass.core.event import Event
from windlass.core.ids import uuid7
from windlass.core.job.dependency import FlowStats, OnParent
from windlass.core.job.row import CORRELATION_ID, JobRow, NewJob
from windlass.core.job.state import ACTIVE, State
from windlass.core.query.diagnosis import Why, why
from windlass.core.query.job_query import Query
from windlass.core.query.queue_rates import Drain
from windlass.core.worker_presence import WORKER, LiveWorker, Readiness, deafness, store_problem
from windlass.insights import diagnosis, failures, lineage, queues
from windlass.insights.failures import FailureGroups
from windlass.insights.queues import Queue
from windlass.store import Served, Store
from windlass.task_spec import TaskSpec

BATCH = 1000  # jobs in one call


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """What may be said about one job beyond its arguments. Durations are seconds here.

    id: of your own making, a UUID; asking again with it is harmless
    queue: another one than the task's
    priority: another one than the task's; higher first
    delay: run no sooner than after this
    run_at: run no sooner than at this time; it must have a time zone
    hold: keep it until `job.submit()`
    expires_in: if it has not started by then, it fails, with the code `expired`
    request_id: the same again is the same job (`duplicate`); with other arguments, a conflict
    unique_key: at most one active job of the task with this key; the one there is the answer
    debounce: with a unique key: the new job replaces one that waits
    owner: whose it is; request ids and unique keys are each owner's own
    team: for your own use; kept with the job
    tags: to find it by
    headers: for your own use: trace context and the like; `correlation-id` goes on to its children
    depends_on: jobs, or their ids, that must have succeeded before it runs
    on_parent: if one of those did not: `cancel` it, too, `fail`, or `run` all the same
    flow_id: of the flow that it belongs to; `app.flow()` gives it
    limit_key: another one than its task's says; limits per key count by it, and keys take turns
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


def _plain(task: TaskSpec, payload: bytes, limit_key: str | None) -> NewJob:
    """A job with nothing of its own, as nearly all are that come in bulk."""
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
    """Speaks to one store handle, on the event loop that owns it."""

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
        """The job that a call of the task stands for; its arguments are checked here."""
        stored = task.signature.store(args, kwargs, options.depends_on)
        payload = self.codec.encode(stored, Purpose.PAYLOAD)
        limit_key = options.limit_key
        if limit_key is None and task.key is not None:
            limit_key = task.key_of(args, kwargs)
        if options is NO_OPTIONS:
            return _plain(task, payload, limit_key)
        job_id = options.id or uuid7()
        settings = task.options
        keyed = options.request_id is not None or options.id is not None
        return NewJob(
            id=job_id,
            task=task.name,
            queue=options.queue or settings.queue,
            payload=payload,
            priority=settings.priority if options.priority is None else options.priority,
            delay=options.delay,
            run_at=from_datetime(options.run_at) if options.run_at else None,
            hold=options.hold,
            expires_in=options.expires_in,
            policy=settings.policy,
            lease=settings.lease,
            owner=options.owner,
            team=options.team,
            tags=options.tags,
            headers=options.headers,
            request_id=options.request_id,
            digest=self.codec.digest([task.name, stored]) if keyed else None,
            unique_key=options.unique_key,
            debounce=options.debounce,
            depends_on=options.depends_on,
            on_parent=options.on_parent,
            flow_id=options.flow_id,
            limit_key=limit_key,
        )

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        return await self.store.enqueue(jobs, together=together)

    async def get(self, job_id: UUID) -> JobRow:
        [row] = await self.store.get([job_id])
        if row is None:
            raise NotFoundError(f"no job {job_id}")
        return row

    async def submit(self, job_id: UUID) -> State:
        """Queue a job that was held."""
        [answer] = await self.store.apply([outcome.submit(job_id)])
        return _state(answer.status, answer.state, job_id, "submitted")

    async def cancel(
        self, job_id: UUID, *, by: str | None = None, reason: str | None = None
    ) -> State:
        """`canceled`, or `running`: the request is recorded, and it will win."""
        request = CancelRequest(job_id=job_id, by=by, reason=reason)
        [answer] = await self.store.cancel([request])
        return _state(answer.status, answer.state, job_id, "canceled")

    async def retry(self, job_id: UUID) -> Enqueued:
        """Do a finished job again, from its beginning, as a new job that points back to it.

        If a retry of it is still under way, that one is the answer.
        """
        return await self._again(await self.get(job_id), resume=False)

    async def resume(self, job_id: UUID) -> Enqueued:
        """The same, with the steps that were completed: it goes on after the last of them."""
        row = await self.get(job_id)
        if not row.final:
            raise ConflictError(f"job {job_id} is {row.state}; only a finished job can be resumed")
        if row.state is State.SUCCEEDED:
            raise ConflictError(f"job {job_id} succeeded: nothing of it is left to do; retry it")
        if not row.can_resume:
            raise ConflictError(f"job {job_id} completed no step to go on from; retry it instead")
        return await self._again(row, resume=True)

    async def _again(self, row: JobRow, *, resume: bool) -> Enqueued:
        [parents] = await lineage.parents(self.store, self.codec, [row])
        new = replace(again(row, resume=resume), depends_on=parents)
        [answer] = await self.enqueue([new])
        accepted(answer)
        return answer

    async def signal(self, job_id: UUID, name: str, value: Any = None) -> State:
        """Give a job what it waits for, or will wait for: `ctx.wait_for(name)` answers it."""
        data = self.codec.encode(value, Purpose.CHECKPOINT)
        [answer] = await self.store.signal([Signal(job_id=job_id, name=name, value=data)])
        if answer.error is not None:
            raise answer.error
        return _state(answer.status, answer.state, job_id, "signaled")

    # -- flows

    async def flow(
        self, flow_id: UUID, *, owner: str | None = None, team: str | None = None
    ) -> FlowStats:
        """As a whole, or what is in it of an owner and a team."""
        [stats] = await self.store.flows([flow_id], owner, team)
        if stats is None:
            raise NotFoundError(f"no flow {flow_id}")
        return stats

    async def flow_jobs(
        self, flow_id: UUID, states: frozenset[State] = frozenset()
    ) -> AsyncIterator[JobRow]:
        """Its jobs in these states (all of them by default), the newest first."""
        query = Query(flow_id=flow_id, states=states, limit=1000)
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
        """Cancel what has not ended, the last to run first; answers how many jobs that were."""
        await self.flow(flow_id)
        rows = [row async for row in self.flow_jobs(flow_id, ACTIVE)]
        asked = [CancelRequest(job_id=row.id, by=by, reason=reason) for row in rows]
        done = 0
        for start in range(0, len(asked), BATCH):
            answers = await self.store.cancel(asked[start : start + BATCH])
            done += sum(answer.applied for answer in answers)
        return done

    async def retry_flow(
        self,
        flow_id: UUID,
        *,
        resume: bool,
        told: Callable[[Enqueued], Enqueued] = lambda answer: answer,
    ) -> list[JobRow]:
        """Do again what failed or was canceled; what succeeded stands, and so do its results.

        `told` says what whoever asks may know of each answer.
        """
        await self.flow(flow_id)
        rows = [row async for row in self.flow_jobs(flow_id) if row.retried_as is None]
        busy = [row for row in rows if not row.final]
        if busy:
            raise ConflictError(
                f"{len(busy)} jobs of flow {flow_id} have not ended; wait for them, or cancel it"
            )
        lost = [row for row in reversed(rows) if row.state is not State.SUCCEEDED]
        if not lost:
            raise ConflictError(f"flow {flow_id} succeeded: nothing of it is left to do")
        fresh = {row.id: uuid7() for row in lost}
        known = {row.id: row for row in lost}
        above = dict(zip(known, await lineage.parents(self.store, self.codec, lost), strict=True))
        order = TopologicalSorter({id_: set(above[id_]) & fresh.keys() for id_ in fresh})
        jobs = [
            replace(
                again(known[id_], resume=resume and known[id_].can_resume),
                id=fresh[id_],
                depends_on=tuple(fresh.get(parent, parent) for parent in above[id_]),
            )
            for id_ in order.static_order()
        ]
        return [accepted(told(answer)) for answer in await self.enqueue(jobs, together=True)]

    async def wait(self, job_id: UUID) -> JobRow:
        """The job once it has ended."""
        async for _ in self.events(job_id):
            pass
        return await self.get(job_id)

    async def why(self, job_id: UUID) -> Why:
        """Why it is not running, or not any more: every reason that holds, the weightiest first."""
        if isinstance(self.store, Served):
            return await self.store.why(job_id)
        row = await self.get(job_id)
        workers = [] if row.final else await self.workers()
        return why(row, await diagnosis.seen(self.store, row, workers))

    async def workers(self) -> list[LiveWorker]:
        """The workers that live, as they last showed themselves, by name."""
        found: list[LiveWorker] = []
        after = ""
        while entries := await self.store.list_records(WORKER, after):
            found += [LiveWorker.decode(entry.value) for entry in entries]
            after = entries[-1].key
        return found

    async def queues(self) -> list[Queue]:
        """What is in each queue, for how long, and how quickly it went in the last minutes."""
        return await queues.queues(self.store)

    async def failures(
        self, since: Instant, *, owner: str | None = None, team: str | None = None
    ) -> FailureGroups:
        """What failed since then, by task and error, the most frequent first."""
        return await failures.failures(self.store, self.codec, since, owner=owner, team=team)

    def drain(self, *names: str) -> AsyncIterator[Drain]:
        """Look at these queues until nothing is left in them that waits or runs.

        `async for look in client.drain("media"): …`; workers do the work, this only waits.
        """
        return queues.drain(self.store, names)

    async def clear(self, queue: str, *, reason: str | None = None) -> int:
        """Cancel all that waits in the queue now, and nothing that runs; answers how many."""
        return await queues.clear(self.store, queue, reason)

    async def readiness(self, *, host: str | None = None, timeout: float = 5.0) -> Readiness:
        """Whether the store answers and no live worker is deaf; with `host`, no worker there."""
        try:
            async with asyncio.timeout(timeout):
                await self.store.ping()
                workers = await self.workers()
        except (StoreError, TimeoutError) as error:
            return Readiness((store_problem(error, timeout),))
        return Readiness(deafness(one for one in workers if host in {None, one.host}))

    def events(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return self.store.tail(job_id, after)


def again(row: JobRow, *, resume: bool = False) -> NewJob:
    """The request that a finished job was, once more.

    Its request id stays with the first job, and its expiry, which was meant for that time, too.
    """
    return NewJob(
        id=uuid7(),
        task=row.task,
        queue=row.queue,
        payload=row.payload,
        priority=row.priority,
        policy=row.policy,
        lease=row.lease_seconds,
        owner=row.owner,
        team=row.team,
        tags=row.tags,
        headers={**row.headers, CORRELATION_ID: row.correlation_id},
        unique_key=row.unique_key,
        retry_of=row.id,
        resume=resume,
        on_parent=row.on_parent,
        flow_id=row.flow_id,
        limit_key=row.limit_key,
    )


def check_accepted(answer: Enqueued) -> None:
    """Raise the reason why no job stands for the request."""
    if answer.status is EnqueueStatus.CONFLICT or answer.status is EnqueueStatus.REFUSED:
        raise answer.error or ConflictError(f"job {answer.new.id} was refused")


def accepted(answer: Enqueued) -> JobRow:
    """The job that stands for the request, or the reason why there is none."""
    check_accepted(answer)
    row = answer.row
    assert row is not None
    return row


def _state(status: Status, state: State | None, job_id: UUID, verb: str) -> State:
    if status is Status.MISSING or state is None:
        raise NotFoundError(f"no job {job_id}")
    if status is not Status.APPLIED:
        error: RequestError = ConflictError(f"job {job_id} is {state} and cannot be {verb}")
        raise error
    return state
