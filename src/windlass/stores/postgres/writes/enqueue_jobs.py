"""Putting in: plain jobs in one statement, jobs with keys one after the other under their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from uuid import UUID

import asyncpg

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import (
    Enqueued,
    EnqueueStatus,
    Rivals,
    admit,
    refusal,
)
from windlass.core.errors import RequestError
from windlass.core.job import row as jobs
from windlass.core.job.row import JobRow, NewJob
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.errors import Overtaken
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.batch import Batch
from windlass.stores.postgres.writes.inserts import Limited, Stored, answer_of, by_id, insert
from windlass.stores.postgres.writes.keyed_enqueue import Desk


def number_of(*parts: str) -> int:
    """A key as the number of an advisory lock. Two keys that share one wait for each other.

    The server's `windlass_number` makes the same: both ways to enqueue meet at one lock.
    """
    digest = sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def check(new: NewJob, rule: Callable[[NewJob], None] = jobs.check) -> Enqueued | None:
    """The refusal of a request that is wrong in itself."""
    try:
        rule(new)
    except RequestError as error:
        return Enqueued(EnqueueStatus.REFUSED, new, error=error)
    return None


async def plain(
    connection: Connection, wanted: Sequence[NewJob], now: Instant | None
) -> list[Enqueued]:
    """Jobs that only their ids can stand in the way of; nothing is looked up unless one does.

    Raises `Limited` if a limit is set for one of them.
    """
    shared = rows.alike(wanted) if check(wanted[0]) is None else None
    rule = jobs.check if shared is None else jobs.check_own  # the rest is what the first has
    answers = [check(new, rule) for new in wanted]
    sound = [new for new, no in zip(wanted, answers, strict=True) if no is None]
    created = await _alike(connection, sound, now, shared) if sound else []
    if created is None:
        created = await _one_by_one(connection, sound, now)
    if len(created) == len(wanted):
        return created
    rest = iter(created)
    return [next(rest) if answer is None else answer for answer in answers]


async def _alike(
    connection: Connection, wanted: Sequence[NewJob], now: Instant | None, shared: Row | None
) -> list[Enqueued] | None:
    """All that can be done by the shortest statement; None: they need the longer one."""
    ids, payloads = [new.id for new in wanted], [new.payload for new in wanted]
    if shared is None or not rows.fits(payloads):
        return None
    try:
        [[numbers, at]] = await connection.fetch(SQL.insert_alike, now, ids, payloads, *shared)
    except asyncpg.UniqueViolationError:
        return None
    if numbers is None:
        raise Limited
    made = EnqueueStatus.CREATED
    return [Enqueued(made, new, at, n) for new, n in zip(wanted, numbers, strict=True)]


async def _one_by_one(
    connection: Connection, wanted: Sequence[NewJob], now: Instant | None
) -> list[Enqueued]:
    stored = await insert(connection, [rows.insertion(new) for new in wanted], now)
    answers: list[Enqueued | None] = []
    for new in wanted:
        given = stored.pop(new.id, None)  # a second one with this id has met the first
        answers.append(None if given is None else _made(new, given))
    met = [new.id for new, answer in zip(wanted, answers, strict=True) if answer is None]
    found = await by_id(connection, met) if met else {}
    return [
        answer or _met(new, found.get(new.id)) for new, answer in zip(wanted, answers, strict=True)
    ]


def _made(new: NewJob, its: Stored) -> Enqueued:
    return Enqueued(
        EnqueueStatus.CREATED, new, its.at, its.serial, gates=its.gates, place=its.position
    )


async def gated(
    connection: Connection, wanted: Sequence[NewJob], given: Instant | None, shard: int
) -> tuple[list[Enqueued], Batch]:
    """The same where some have to pass a gate: in one transaction with their passing."""
    batch = Batch(connection, await connection.fetchval(SQL.now, given), shard)
    answers = [check(new) for new in wanted]
    sound = [new for new, no in zip(wanted, answers, strict=True) if no is None]
    values = [rows.insertion(new) for new in sound]
    stored = await insert(connection, values, batch.now, gated=True)
    batch.look_at(gate for its in stored.values() for gate in its.gates)
    batch.work = bool(stored)
    await batch.finish()
    moved = {id_ for id_, its in stored.items() if len(its.gates) > 1}  # perhaps to another gate
    met = [new.id for new in sound if new.id not in stored]
    looked = {*met, *moved, *stored.keys() & set(batch.touched)}
    found = await by_id(connection, looked) if looked else {}
    first: dict[UUID, Enqueued] = {}
    for place, new in enumerate(wanted):
        if answers[place] is not None:
            continue
        if new.id in first or new.id not in stored:  # a second one with this id met the first
            answers[place] = _met(new, first[new.id].row if new.id in first else found.get(new.id))
            continue
        answer = _made(new, stored[new.id])
        if new.id in found:
            answer = Enqueued(EnqueueStatus.CREATED, new, existing=found[new.id])
        answers[place] = first[new.id] = answer
    return [answer for answer in answers if answer is not None], batch


def _met(new: NewJob, row: JobRow | None) -> Enqueued:
    if row is None:
        raise Overtaken  # it was deleted since
    return answer_of(new, admit(new, Rivals(same_id=row)))


async def lock(connection: Connection, wanted: Sequence[tuple[UUID, Sequence[NewJob]]]) -> set[int]:
    """Take the keys of all these jobs, as far as nobody has them; comes before any other lock.

    The answer is the places of those that have to wait for somebody's commit, and of those that
    share a key or a name with one of them: their order stays. Retries go by the first job of their
    lineage, which never changes: one of them may be active.
    """
    origins = [new.retry_of for _, group in wanted for new in group if new.retry_of is not None]
    known = await by_id(connection, origins) if origins else {}
    numbers = [{n for new in group for n in _numbers(new, known)} for _, group in wanted]
    every = sorted(set().union(*numbers))
    if not every:
        return set()
    taken: set[object] = {row[0] for row in await connection.fetch(SQL.taken_keys, every)}
    places = [{name, *keys} for (name, _), keys in zip(wanted, numbers, strict=True)]
    late: set[int] = set()
    while more := {
        place
        for place, names in enumerate(places)
        if place not in late and not taken.isdisjoint(names)
    }:
        late |= more
        taken.update(*(places[place] for place in more))
    return late


def _numbers(new: NewJob, origins: Mapping[UUID, JobRow]) -> Iterator[int]:
    if new.retry_of is not None and new.retry_of in origins:
        yield number_of("retry", str(origins[new.retry_of].lineage))
    if new.request_id is not None:
        yield number_of("request", new.owner, new.request_id)
    if new.unique_key is not None:
        yield number_of("unique", new.owner, new.task, new.unique_key)


def _not_held(
    wanted: Sequence[NewJob], places: Sequence[int], batch: Batch, late: Iterable[int]
) -> list[int]:
    """Those whose parents nobody else has, nor the parents of a parent that comes along.

    The `late` ones wait for somebody's commit, and who depends on them waits, too.
    """
    held = {*batch.held, *(wanted[place].id for place in late)}
    free = []
    for place in places:
        if held.isdisjoint(wanted[place].depends_on):
            free.append(place)
        else:
            held.add(wanted[place].id)
    return free


async def keyed(
    connection: Connection, wanted: Sequence[NewJob], given: Instant | None, shard: int
) -> tuple[list[Enqueued | None], Batch]:
    """In one transaction, in order: a later job meets the keys of an earlier one.

    None: an open transaction of somebody's has a key or a parent of this one. Nothing was decided
    about it.
    """
    return await _keyed(connection, wanted, given, shard)


async def together(
    connection: Connection, wanted: Sequence[NewJob], given: Instant | None, shard: int
) -> tuple[list[Enqueued | None], Batch]:
    """The same for jobs that come all or none."""
    return await _keyed(connection, wanted, given, shard, together=True)


async def _keyed(
    connection: Connection,
    wanted: Sequence[NewJob],
    given: Instant | None,
    shard: int,
    *,
    together: bool = False,
) -> tuple[list[Enqueued | None], Batch]:
    answers = [check(new) for new in wanted]
    sound = [place for place, refused in enumerate(answers) if refused is None]
    late = await lock(connection, [(wanted[place].id, [wanted[place]]) for place in sound])
    free = [place for index, place in enumerate(sound) if index not in late]
    batch = Batch(connection, await connection.fetchval(SQL.now, given), shard)
    desk = Desk(connection, batch)
    await desk.look_up([wanted[place] for place in free])
    free = _not_held(wanted, free, batch, set(sound) - set(free))
    if together and len(free) < len(sound):
        return [None] * len(wanted), batch
    jobs_ = [wanted[place] for place in free]
    if together:
        error = next((it.error for it in answers if it is not None), None)
        error = error or refusal(jobs_, desk.rivals)
        if error is not None:
            return [Enqueued(EnqueueStatus.REFUSED, new, error=error) for new in wanted], batch
    stored = await desk.enqueue(jobs_)
    await batch.finish()
    for place, answer in zip(free, await desk.as_they_stand(stored), strict=True):
        answers[place] = answer
    return answers, batch
