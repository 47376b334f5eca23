"""Applies transitions, cancels, signals and records: locks jobs, lets the core decide, writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import batch_conflict
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    Decision,
    SignalRequest,
    Status,
    Transition,
    check_records,
    check_request,
)
from windlass.core.errors import RequestError
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import State, Trigger
from windlass.store import AttemptRecords
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes import enqueue_jobs
from windlass.stores.postgres.writes.batch import LoadedJob, PostgresBatch
from windlass.stores.postgres.writes.keyed_enqueue import KeyedEnqueue

MISSING = ApplyResult(Status.MISSING)
BUSY = ApplyResult(Status.BUSY)
SUCCEEDED = ApplyResult(Status.APPLIED, State.SUCCEEDED)
# Triggers that may end a job without success.
_UNSUCCESSFUL_TRIGGERS = frozenset(
    {
        Trigger.FAIL,
        Trigger.ABORT,
        Trigger.GIVE_UP,
        Trigger.CANCEL,
        Trigger.EXPIRE,
        Trigger.PARENT_CANCEL,
        Trigger.PARENT_FAIL,
    }
)


def check(requests: Sequence[ApplyRequest]) -> dict[int, ApplyResult]:
    """Return the refusals of invalid requests, by index."""
    refused: dict[int, ApplyResult] = {}
    for index, request in enumerate(requests):
        try:
            check_request(request)
        except RequestError as error:
            refused[index] = ApplyResult(Status.REFUSED, error=error)
    return refused


async def apply(
    connection: Connection,
    requests: Sequence[ApplyRequest],
    test_now: Instant | None,
    shard: int,
    *,
    opened_gates: Iterable[str] = (),
) -> tuple[list[ApplyResult | None], PostgresBatch]:
    """Apply requests in one transaction, in order; core decides each under its job's lock.

    None: another transaction has locked the job, or a key of one of its children; nothing was
    decided. `opened_gates` are gates that other jobs of the call left.
    """
    waiting = await enqueue_jobs.lock_keys(
        connection, [(request.job_id, _children(request)) for request in requests]
    )
    unlocked = [request for index, request in enumerate(requests) if index not in waiting]
    batch = await PostgresBatch.open(
        connection,
        test_now,
        shard,
        [request.job_id for request in unlocked],
        done=[request.job_id for request in unlocked if _may_succeed(request)],
        unsuccessful=[request.job_id for request in unlocked if _may_end_unsuccessfully(request)],
        others={id_ for request in unlocked for id_ in _other_jobs(request)},
    )
    batch.mark_gates(opened_gates)
    await _load_past_outcomes(batch, requests)
    await _load_signals(batch, requests)
    results: list[ApplyResult | None] = []
    deferred: set[UUID] = set()  # jobs of which a request was not decided: later ones wait, too
    for index, request in enumerate(requests):
        used = {request.job_id, *_other_jobs(request)}
        locked = batch.locked_elsewhere
        if index in waiting or not (locked.isdisjoint(used) and deferred.isdisjoint(used)):
            deferred.add(request.job_id)
            results.append(None)
            continue
        loaded = await _load(batch, request)
        if loaded is None:
            results.append(MISSING)
            continue
        decision = decide.decide(loaded.row, request, batch.now, PostgresStoredJob(batch, loaded))
        if decision.ends_job and batch.is_locked(request.job_id):
            deferred.add(request.job_id)
            results.append(None)
        elif decision.children or decision.awaits:
            results.append(await _apply_with_children(connection, batch, loaded, decision))
        else:
            results.append(batch.write(loaded, decision))
    await batch.finish()
    return results, batch


class PostgresStoredJob:
    """Data of a loaded job outside its lifecycle row, for `decide`."""

    __slots__ = ("_batch", "_n", "owner")

    def __init__(self, batch: PostgresBatch, loaded: LoadedJob) -> None:
        self._batch = batch
        self._n = loaded.n
        self.owner: str = loaded.owner

    def past_outcome(self, fence: int) -> tuple[UUID, Trigger] | None:
        return self._batch.past(self._n, fence)

    def has_step(self, step: str) -> bool:
        return self._batch.has_step(self._n, step)


def _children(request: ApplyRequest) -> tuple[NewJob, ...]:
    return request.children if isinstance(request, Transition) else ()


def _may_succeed(request: ApplyRequest) -> bool:
    return isinstance(request, Transition) and request.trigger is Trigger.SUCCEED


def _may_end_unsuccessfully(request: ApplyRequest) -> bool:
    if isinstance(request, Transition):
        return request.trigger in _UNSUCCESSFUL_TRIGGERS
    return isinstance(request, CancelRequest)


async def _load(batch: PostgresBatch, request: ApplyRequest) -> LoadedJob | None:
    loaded = batch.find(request.job_id)
    if loaded is None:  # written by an earlier request of this batch
        await batch.load([request.job_id])
        loaded = batch.find(request.job_id)
        if loaded is not None and isinstance(request, SignalRequest):
            await batch.load_steps([(loaded.n, request.step)])
    return loaded


async def _load_past_outcomes(batch: PostgresBatch, requests: Sequence[ApplyRequest]) -> None:
    """Load past attempts for late settles, which may repeat an outcome in the log."""
    late = set()
    for request in requests:
        loaded = batch.find(request.job_id)
        if loaded is not None and isinstance(request, Transition) and request.trigger.settles:
            row = loaded.row
            if row.fence != request.fence or row.state is not State.RUNNING:
                late.add((loaded.n, request.fence))
    await batch.load_past_outcomes(late)


async def _load_signals(batch: PostgresBatch, requests: Sequence[ApplyRequest]) -> None:
    """Load which of the signals the jobs have already."""
    signals = [request for request in requests if isinstance(request, SignalRequest)]
    found = ((batch.find(request.job_id), request.step) for request in signals)
    await batch.load_steps({(loaded.n, step) for loaded, step in found if loaded is not None})


async def _apply_with_children(
    connection: Connection, batch: PostgresBatch, loaded: LoadedJob, decision: Decision
) -> ApplyResult:
    """Apply a success or a suspension with its children: all or nothing."""
    await batch.flush()
    enqueuer = KeyedEnqueue(connection, batch)
    await enqueuer.load_conflicts(decision.children)
    error = batch_conflict(decision.children, enqueuer.conflicts)
    if error is not None:
        return ApplyResult(Status.REFUSED, loaded.row.state, error)
    batch.record(loaded, decision)
    await batch.flush()
    enqueuer = KeyedEnqueue(connection, batch)  # the parent has ended and freed its key
    await enqueuer.load_conflicts(decision.children)
    await enqueuer.enqueue(decision.children)
    if decision.awaits:
        return await _suspend(connection, batch, loaded, decision.awaits)
    if decision.ends_job:  # after its children: they are queued before its dependents
        batch.update_dependents(loaded)
    return decision.result


async def _suspend(
    connection: Connection, batch: PostgresBatch, loaded: LoadedJob, awaits: Sequence[UUID]
) -> ApplyResult:
    """Make the job wait for those jobs that have not ended. New children need no lock."""
    await batch.flush()
    await batch.load(awaits)
    parents = [(id_, job) for id_ in awaits if (job := batch.find(id_)) is not None]
    waits_for = {id_ for id_, job in parents if not job.row.final and job.owner == loaded.owner}
    first: int = await connection.fetchval(SQL.next_edge_ordinal, loaded.n)
    await batch.link(
        [
            (loaded.n, loaded.row.id, job.n, id_, ordinal, id_ in waits_for)
            for ordinal, (id_, job) in enumerate(parents, first)
        ]
    )
    return batch.write(loaded, decide.after_suspend(loaded.row, len(waits_for), batch.now))


def _other_jobs(request: ApplyRequest) -> set[UUID]:
    """Return existing jobs, other than its own, that the request makes a job wait for."""
    if not isinstance(request, Transition) or not (request.children or request.awaits):
        return set()
    parents = {id_ for child in request.children for id_ in child.depends_on}
    return (parents | set(request.awaits)) - {child.id for child in request.children}


async def record(
    connection: Connection,
    attempt_records: Sequence[AttemptRecords],
    test_now: Instant | None,
    shard: int,
) -> tuple[list[ApplyResult | None], PostgresBatch]:
    """None: another transaction has locked the job."""
    batch = PostgresBatch(connection, await connection.fetchval(SQL.now, test_now), shard)
    await batch.load(entry.lease.job_id for entry in attempt_records)
    results: list[ApplyResult | None] = []
    for entry in attempt_records:
        try:
            check_records(entry.records)
        except RequestError as error:
            results.append(ApplyResult(Status.REFUSED, error=error))
            continue
        lease = entry.lease
        loaded = batch.find(lease.job_id)
        if loaded is None:
            results.append(None if lease.job_id in batch.locked_elsewhere else MISSING)
            continue
        decision = decide.record(loaded.row, lease.fence, lease.token, entry.records, batch.now)
        results.append(batch.write(loaded, decision))
    await batch.finish()
    return results, batch
