"""Enqueue: plain jobs in one statement, jobs with keys in order, under locks on their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from uuid import UUID

import asyncpg

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import (
    Conflicts,
    EnqueueResult,
    EnqueueStatus,
    batch_conflict,
    decide_enqueue,
)
from windlass.core.errors import RequestError
from windlass.core.job.new_job import NewJob, check_new_job, check_own_fields
from windlass.core.job.row import JobRow
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.errors import ConcurrentChange
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.reads import jobs_by_id
from windlass.stores.postgres.writes.batch import PostgresBatch
from windlass.stores.postgres.writes.inserts import (
    InsertedJob,
    LimitApplies,
    insert,
    result_of,
)
from windlass.stores.postgres.writes.keyed_enqueue import KeyedEnqueue


def lock_number(*parts: str) -> int:
    """Return the advisory lock number of a key. Two keys with the same number share the lock.

    The SQL function `windlass_lock_number` returns the same: both ways to enqueue use one lock.
    """
    digest = sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def check(new: NewJob, rule: Callable[[NewJob], None] = check_new_job) -> EnqueueResult | None:
    """Return the refusal of an invalid request, or None."""
    try:
        rule(new)
    except RequestError as error:
        return EnqueueResult(EnqueueStatus.REFUSED, new, error=error)
    return None


async def enqueue_plain(
    connection: Connection, requested: Sequence[NewJob], now: Instant | None
) -> list[EnqueueResult]:
    """Enqueue jobs that only their ids can conflict on; reads nothing unless one does.

    Raise `LimitApplies` if a limit applies to one of them.
    """
    shared = rows.shared_params(requested) if check(requested[0]) is None else None
    # Uniform jobs share all other fields with the first, which is checked.
    rule = check_new_job if shared is None else check_own_fields
    results = [check(new, rule) for new in requested]
    valid = [new for new, refusal in zip(requested, results, strict=True) if refusal is None]
    created = await _insert_uniform(connection, valid, now, shared) if valid else []
    if created is None:
        created = await _insert_checked(connection, valid, now)
    if len(created) == len(requested):
        return created
    rest = iter(created)
    return [next(rest) if result is None else result for result in results]


async def _insert_uniform(
    connection: Connection, requested: Sequence[NewJob], now: Instant | None, shared: Row | None
) -> list[EnqueueResult] | None:
    """Insert with the short statement; return None if the jobs need `insert_jobs`."""
    ids, payloads = [new.id for new in requested], [new.payload for new in requested]
    if shared is None or not rows.fits(payloads):
        return None
    try:
        [[numbers, at]] = await connection.fetch(SQL.insert_uniform, now, ids, payloads, *shared)
    except asyncpg.UniqueViolationError:
        return None
    if numbers is None:
        raise LimitApplies
    status = EnqueueStatus.CREATED
    return [EnqueueResult(status, new, at, n) for new, n in zip(requested, numbers, strict=True)]


async def _insert_checked(
    connection: Connection, requested: Sequence[NewJob], now: Instant | None
) -> list[EnqueueResult]:
    stored = await insert(connection, [rows.insert_params(new) for new in requested], now)
    results: list[EnqueueResult | None] = []
    for new in requested:
        job = stored.pop(new.id, None)  # a second job with this id conflicts with the first
        results.append(None if job is None else _created(new, job))
    existing_ids = [
        new.id for new, result in zip(requested, results, strict=True) if result is None
    ]
    found = await jobs_by_id(connection, existing_ids) if existing_ids else {}
    return [
        result or _existing_result(new, found.get(new.id))
        for new, result in zip(requested, results, strict=True)
    ]


def _created(new: NewJob, job: InsertedJob) -> EnqueueResult:
    return EnqueueResult(
        EnqueueStatus.CREATED, new, job.at, job.serial, gates=job.gates, position=job.position
    )


async def enqueue_gated(
    connection: Connection, requested: Sequence[NewJob], test_now: Instant | None, shard: int
) -> tuple[list[EnqueueResult], PostgresBatch]:
    """Enqueue plain jobs of which some have gates, and admit them in the same transaction."""
    batch = PostgresBatch(connection, await connection.fetchval(SQL.now, test_now), shard)
    results = [check(new) for new in requested]
    valid = [new for new, refusal in zip(requested, results, strict=True) if refusal is None]
    values = [rows.insert_params(new) for new in valid]
    stored = await insert(connection, values, batch.now, gated=True)
    batch.mark_gates(gate for job in stored.values() for gate in job.gates)
    batch.work = bool(stored)
    await batch.finish()
    # A job with several gates may have moved to the next one.
    multi_gate = {id_ for id_, job in stored.items() if len(job.gates) > 1}
    existing_ids = [new.id for new in valid if new.id not in stored]
    ids_to_read = {*existing_ids, *multi_gate, *stored.keys() & set(batch.touched)}
    found = await jobs_by_id(connection, ids_to_read) if ids_to_read else {}
    first: dict[UUID, EnqueueResult] = {}
    for index, new in enumerate(requested):
        if results[index] is not None:
            continue
        # A second job with this id conflicts with the first.
        if new.id in first or new.id not in stored:
            results[index] = _existing_result(
                new, first[new.id].row if new.id in first else found.get(new.id)
            )
            continue
        result = _created(new, stored[new.id])
        if new.id in found:
            result = EnqueueResult(EnqueueStatus.CREATED, new, existing=found[new.id])
        results[index] = first[new.id] = result
    return [result for result in results if result is not None], batch


def _existing_result(new: NewJob, row: JobRow | None) -> EnqueueResult:
    if row is None:
        raise ConcurrentChange  # deleted since the insert
    return result_of(new, decide_enqueue(new, Conflicts(same_id=row)))


async def lock_keys(
    connection: Connection, requested: Sequence[tuple[UUID, Sequence[NewJob]]]
) -> set[int]:
    """Lock the keys of these jobs that are available, before any other lock.

    Return the indexes of items that must wait for another transaction. Items that share a key or an
    id with one of them wait, too: their order must not change. Only one job of a lineage may be
    active, so a retry locks the id of the first job of its lineage, which never changes.
    """
    origins = [new.retry_of for _, group in requested for new in group if new.retry_of is not None]
    found = await jobs_by_id(connection, origins) if origins else {}
    numbers = [{n for new in group for n in _lock_numbers(new, found)} for _, group in requested]
    all_numbers = sorted(set().union(*numbers))
    if not all_numbers:
        return set()
    taken: set[object] = {
        row[0] for row in await connection.fetch(SQL.unavailable_keys, all_numbers)
    }
    resources = [{name, *keys} for (name, _), keys in zip(requested, numbers, strict=True)]
    waiting: set[int] = set()
    while more := {
        index
        for index, names in enumerate(resources)
        if index not in waiting and not taken.isdisjoint(names)
    }:
        waiting |= more
        taken.update(*(resources[index] for index in more))
    return waiting


def _lock_numbers(new: NewJob, origins: Mapping[UUID, JobRow]) -> Iterator[int]:
    if new.retry_of is not None and new.retry_of in origins:
        yield lock_number("retry", str(origins[new.retry_of].lineage))
    if new.request_id is not None:
        yield lock_number("request", new.owner, new.request_id)
    if new.unique_key is not None:
        yield lock_number("unique", new.owner, new.task, new.unique_key)


def _unlocked(
    requested: Sequence[NewJob],
    indexes: Sequence[int],
    batch: PostgresBatch,
    waiting: Iterable[int],
) -> list[int]:
    """Return the indexes of jobs whose parents are not locked by another transaction.

    Jobs that depend on one that is left out, or on one of `waiting`, are left out, too.
    """
    locked = {*batch.locked_elsewhere, *(requested[index].id for index in waiting)}
    unlocked = []
    for index in indexes:
        if locked.isdisjoint(requested[index].depends_on):
            unlocked.append(index)
        else:
            locked.add(requested[index].id)
    return unlocked


async def enqueue_keyed(
    connection: Connection, requested: Sequence[NewJob], test_now: Instant | None, shard: int
) -> tuple[list[EnqueueResult | None], PostgresBatch]:
    """Enqueue in one transaction, in order: later jobs see the keys of earlier ones.

    None: another transaction has locked a key or a parent of this job; nothing was decided.
    """
    return await _keyed(connection, requested, test_now, shard)


async def enqueue_atomic(
    connection: Connection, requested: Sequence[NewJob], test_now: Instant | None, shard: int
) -> tuple[list[EnqueueResult | None], PostgresBatch]:
    """The same, all or none."""
    return await _keyed(connection, requested, test_now, shard, atomic=True)


async def _keyed(
    connection: Connection,
    requested: Sequence[NewJob],
    test_now: Instant | None,
    shard: int,
    *,
    atomic: bool = False,
) -> tuple[list[EnqueueResult | None], PostgresBatch]:
    results = [check(new) for new in requested]
    valid = [index for index, refused in enumerate(results) if refused is None]
    waiting = await lock_keys(
        connection, [(requested[index].id, [requested[index]]) for index in valid]
    )
    unlocked = [index for number, index in enumerate(valid) if number not in waiting]
    batch = PostgresBatch(connection, await connection.fetchval(SQL.now, test_now), shard)
    enqueuer = KeyedEnqueue(connection, batch)
    await enqueuer.load_conflicts([requested[index] for index in unlocked])
    unlocked = _unlocked(requested, unlocked, batch, set(valid) - set(unlocked))
    if atomic and len(unlocked) < len(valid):
        return [None] * len(requested), batch
    new_jobs = [requested[index] for index in unlocked]
    if atomic:
        error = next((result.error for result in results if result is not None), None)
        error = error or batch_conflict(new_jobs, enqueuer.conflicts)
        if error is not None:
            return [
                EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in requested
            ], batch
    stored = await enqueuer.enqueue(new_jobs)
    await batch.finish()
    for index, result in zip(unlocked, await enqueuer.refresh(stored), strict=True):
        results[index] = result
    return results, batch
