"""Enqueue: plain jobs are inserted together, jobs that may conflict with others one by one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import apsw

from windlass.core.admission.gates import gates_of
from windlass.core.clock import Instant
from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import (
    Conflicts,
    EnqueueResult,
    EnqueueStatus,
    batch_error,
    cancel_displaced,
    decide_enqueue,
)
from windlass.core.errors import RequestError
from windlass.core.job import row as jobs
from windlass.core.job.dependency import Parent
from windlass.core.job.new_job import NewJob, check_new_job
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_all
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.reads import load_job, with_payload
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.batch import SqliteBatch, insert_edges, load_parents
from windlass.stores.sqlite.writes.positions import PositionAllocator, order_of
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


def enqueue_atomic(tx: WriteTransaction, new_jobs: Sequence[NewJob]) -> list[EnqueueResult]:
    """Enqueue all jobs or none."""
    error = batch_error(new_jobs, partial(find_conflicts, tx.connection))
    if error is not None:
        return [EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in new_jobs]
    return enqueue(tx, new_jobs)


def enqueue(tx: WriteTransaction, new_jobs: Sequence[NewJob]) -> list[EnqueueResult]:
    results = insert_jobs(tx, new_jobs)
    if not tx.gates_to_check:
        return results
    admitted = gates.open_gates(tx, tx.now())
    any_existing = any(result.existing is not None for result in results)
    numbers = [n for n in map(_number, results) if any_existing or n in admitted]
    found = (
        fetch_all(tx.connection, SQL.jobs_by_serial, (apsw.carray(array("q", numbers)),))
        if numbers
        else []
    )
    current = {row[rows.N]: row for row in found}
    return [
        replace(result, existing=with_payload(tx.connection, row))
        if (row := current.get(_number(result)))
        else result
        for result in results
    ]


def _number(result: EnqueueResult) -> int:
    return result.serial if result.existing is None else result.existing.serial


def insert_jobs(tx: WriteTransaction, new_jobs: Sequence[NewJob]) -> list[EnqueueResult]:
    """Insert the jobs. The caller opens their gates."""
    now, limits = tx.now(), tx.limit_names()
    keyed = any(new.limit_key is not None for new in new_jobs)
    existing = _existing_ids(tx.connection, new_jobs) if keyed or limits else frozenset()
    results: list[EnqueueResult] = []
    run: list[Row] = []  # consecutive plain jobs, inserted together
    allocator = PositionAllocator(tx.connection) if keyed else None
    for new in new_jobs:
        try:
            check_new_job(new)
        except RequestError as error:
            results.append(EnqueueResult(EnqueueStatus.REFUSED, new, error=error))
            continue
        if (
            not new.plain
            or len(new.payload) > rows.INLINE_PAYLOAD
            or (existing and new.id in existing)
        ):
            _insert(tx, run, results)
            run, allocator = [], PositionAllocator(tx.connection) if keyed else None
            results.append(_enqueue_keyed(tx, new, now))
            continue
        serial = tx.next_serial()
        job_gates = gates_of(new.queue, new.task, new.limit_key, limits) if limits else ()
        position = (
            serial if allocator is None else _position(allocator, new, job_gates, serial, now)
        )
        tx.gates_to_check.update(job_gates)
        run.append(rows.insertion(new, now, serial, gates=job_gates, position=position))
        results.append(
            EnqueueResult(
                EnqueueStatus.CREATED, new, now, serial, gates=job_gates, position=position
            )
        )
    _insert(tx, run, results)
    tx.work = True
    return results


def _existing_ids(connection: apsw.Connection, new_jobs: Sequence[NewJob]) -> frozenset[UUID]:
    """Return ids that exist already or occur twice, so that no position is assigned in vain."""
    ids = {new.id.bytes: new.id for new in new_jobs}
    if len(ids) < len(new_jobs):
        return frozenset(ids.values())
    found = fetch_all(connection, SQL.existing_ids, (apsw.carray(tuple(ids)),)) if ids else []
    return frozenset(ids[id_] for (id_,) in found)


def _position(
    allocator: PositionAllocator,
    new: NewJob,
    job_gates: tuple[str, ...],
    serial: int,
    now: Instant,
) -> int:
    """Return the position in the queue or at the first gate; the serial if the job waits."""
    if not rows.starts_queued(new) and jobs.initial_state(new, now).state is not State.QUEUED:
        return serial
    order = order_of(new.queue, job_gates[0] if job_gates else None, new.priority)
    return allocator.assign(order, new.limit_key, serial)


def _insert(tx: WriteTransaction, run: list[Row], results: list[EnqueueResult]) -> None:
    """Insert plain jobs. If an id exists already, replace the results of those jobs."""
    if not run:
        return
    connection = tx.connection
    before = connection.total_changes()
    connection.executemany(SQL.insert_job, run)
    if connection.total_changes() - before == len(run):
        return
    for index, result in enumerate(results):
        if result.status is EnqueueStatus.CREATED and result.existing is None:
            stored = load_job(connection, SQL.get_job, (result.new.id.bytes,))
            assert stored is not None
            if stored.serial != result.serial:
                decision = decide_enqueue(result.new, Conflicts(same_id=stored))
                results[index] = EnqueueResult(
                    decision.status, result.new, existing=decision.existing, error=decision.error
                )


def _enqueue_keyed(tx: WriteTransaction, new: NewJob, now: Instant) -> EnqueueResult:
    connection = tx.connection
    conflicts = find_conflicts(connection, new)
    decision = decide_enqueue(new, conflicts)
    if decision.status is not EnqueueStatus.CREATED or decision.existing is not None:
        return EnqueueResult(decision.status, new, existing=decision.existing, error=decision.error)
    if decision.displace is not None:
        _displace(tx, decision.displace, now)
        # The new job may depend on the displaced one.
        decision = decide_enqueue(new, find_conflicts(connection, new))
    serial = tx.next_serial()  # after the dependents that the displaced job released
    origin = conflicts.origin if new.retry_of is not None else None
    root_id = origin.lineage if origin else None
    last_step = origin.last_step if origin and new.resume else None
    job_gates = gates_of(new.queue, new.task, new.limit_key, tx.limit_names())
    values = rows.insertion(
        new,
        now,
        serial,
        root_id=root_id,
        last_step=last_step,
        waiting_for=decision.waiting_for,
        gates=job_gates,
        position=_position(PositionAllocator(connection), new, job_gates, serial, now),
    )
    connection.execute(SQL.insert_job, values)
    tx.gates_to_check.update(job_gates)
    if len(new.payload) > rows.INLINE_PAYLOAD:
        connection.execute(SQL.insert_payload, (serial, new.payload))
    if origin is not None:
        connection.execute(SQL.set_retried_as, (new.id.bytes, origin.serial))
        if new.resume:
            connection.execute(SQL.copy_steps, (serial, origin.serial))
    parents = load_parents(connection, new.depends_on)
    insert_edges(connection, serial, parents, decision.waits_for)
    if decision.failed_parent is not None:
        _apply_failed_parent(tx, new.id, decision.failed_parent, now)
    stored = load_job(connection, SQL.get_job, (new.id.bytes,))
    return EnqueueResult(EnqueueStatus.CREATED, new, existing=stored)


def _displace(tx: WriteTransaction, row: JobRow, now: Instant) -> None:
    batch = SqliteBatch(tx)
    found = batch.lifecycle(row.id)
    assert found is not None
    batch.write(*found, decide.cancel(found[1], cancel_displaced(row), now), now)
    batch.finish()


def _apply_failed_parent(tx: WriteTransaction, job_id: UUID, parent: Parent, now: Instant) -> None:
    batch = SqliteBatch(tx)
    found = batch.lifecycle(job_id)
    assert found is not None
    batch.write(*found, decide.parent_ended(found[1], parent.id, parent.state, now), now)
    batch.finish()


def find_conflicts(connection: apsw.Connection, new: NewJob) -> Conflicts:
    def by_id(job_id: UUID | None) -> JobRow | None:
        return load_job(connection, SQL.get_job, (job_id.bytes,)) if job_id else None

    origin = by_id(new.retry_of)
    root = origin.lineage.bytes if origin else None
    return Conflicts(
        same_id=by_id(new.id),
        same_request=load_job(connection, SQL.job_by_request, (new.owner, new.request_id))
        if new.request_id is not None
        else None,
        same_key=load_job(connection, SQL.active_by_key, (new.owner, new.task, new.unique_key))
        if new.unique_key is not None
        else None,
        origin=origin,
        active_retry=load_job(connection, SQL.active_of_lineage, (root,)) if root else None,
        parents={
            id_: parent for id_, (_, parent) in load_parents(connection, new.depends_on).items()
        },
    )
