"""Putting in: plain jobs in one statement, jobs with keys one after the other under their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import TypeVar
from uuid import UUID

import asyncpg

from windlass.core import decide
from windlass.core import job as jobs
from windlass.core.clock import Instant
from windlass.core.dependency import Parent
from windlass.core.enqueue import (
    Admission,
    Enqueued,
    EnqueueStatus,
    Rivals,
    admit,
    give_way,
    refusal,
)
from windlass.core.errors import RequestError
from windlass.core.job import JobRow, NewJob
from windlass.core.state import State
from windlass.core.value import pair
from windlass.stores.postgres import rows
from windlass.stores.postgres.batch import Batch, Edge
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.errors import Overtaken
from windlass.stores.postgres.queries import SQL

K = TypeVar("K")


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


class Limited(Exception):  # noqa: N818 - no fault: there is another way
    """Some of these jobs have to pass a gate. Nothing was stored."""


@pair
class _Stored:
    """What the server gave a new job. Whoever has to pass a gate may have passed by the end."""

    serial: int
    at: Instant
    position: int | None
    gates: tuple[str, ...]


async def _insert(
    connection: Connection, values: Sequence[Row], now: Instant | None, *, gated: bool = False
) -> dict[UUID, _Stored]:
    """Each job that was stored; whoever is missing met another one.

    If somebody has to pass a gate, the caller has to see to that, and says so by `gated`.
    """
    stored: dict[UUID, _Stored] = {}
    for piece in rows.portions(values, rows.PAYLOAD):
        found = await connection.fetch(SQL.insert_jobs, now, *rows.insertions(piece), gated)
        for job_id, n, at, position, gates in found:
            if job_id is None:
                raise Limited
            stored.setdefault(job_id, _Stored(n, at, position, tuple(gates or ())))
    return stored


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
    stored = await _insert(connection, [rows.insertion(new) for new in wanted], now)
    answers: list[Enqueued | None] = []
    for new in wanted:
        given = stored.pop(new.id, None)  # a second one with this id has met the first
        answers.append(None if given is None else _made(new, given))
    met = [new.id for new, answer in zip(wanted, answers, strict=True) if answer is None]
    found = await _by_id(connection, met) if met else {}
    return [
        answer or _met(new, found.get(new.id)) for new, answer in zip(wanted, answers, strict=True)
    ]


def _made(new: NewJob, given: _Stored) -> Enqueued:
    made = Enqueued(EnqueueStatus.CREATED, new, given.at, given.serial)
    if given.position in {None, given.serial}:
        return made
    row = jobs.birth(new, given.at, given.serial)
    return replace(made, existing=replace(row, position=given.position))


async def gated(
    connection: Connection, wanted: Sequence[NewJob], given: Instant | None, shard: int
) -> tuple[list[Enqueued], Batch]:
    """The same where some have to pass a gate: in one transaction with their passing."""
    batch = Batch(connection, await connection.fetchval(SQL.now, given), shard)
    answers = [check(new) for new in wanted]
    sound = [new for new, no in zip(wanted, answers, strict=True) if no is None]
    values = [rows.insertion(new) for new in sound]
    stored = await _insert(connection, values, batch.now, gated=True)
    batch.look_at(gate for its in stored.values() for gate in its.gates)
    batch.work = bool(stored)
    await batch.finish()
    moved = {id_ for id_, its in stored.items() if len(its.gates) > 1}  # perhaps to another gate
    met = [new.id for new in sound if new.id not in stored]
    found = await _by_id(connection, {*met, *moved, *stored.keys() & set(batch.touched)})
    made: dict[UUID, Enqueued] = {}
    for place, new in enumerate(wanted):
        if answers[place] is not None:
            continue
        if new.id in made or new.id not in stored:  # a second one with this id met the first
            answers[place] = _met(new, made[new.id].row if new.id in made else found.get(new.id))
            continue
        row = found.get(new.id) or _parked(new, stored[new.id])
        answers[place] = made[new.id] = Enqueued(EnqueueStatus.CREATED, new, existing=row)
    return [answer for answer in answers if answer is not None], batch


def _parked(new: NewJob, its: _Stored) -> JobRow:
    row = jobs.birth(new, its.at, its.serial, gates=its.gates)
    return replace(row, position=its.position)


def _met(new: NewJob, row: JobRow | None) -> Enqueued:
    if row is None:
        raise Overtaken  # it was deleted since
    return _answer(new, admit(new, Rivals(same_id=row)))


def _answer(new: NewJob, verdict: Admission) -> Enqueued:
    return Enqueued(verdict.status, new, existing=verdict.existing, error=verdict.error)


async def _by_id(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, JobRow]:
    found = [rows.job_row(record) for record in await connection.fetch(SQL.get_jobs, list(ids))]
    return {row.id: row for row in found}


async def lock(connection: Connection, wanted: Sequence[tuple[UUID, Sequence[NewJob]]]) -> set[int]:
    """Take the keys of all these jobs, as far as nobody has them; comes before any other lock.

    The answer is the places of those that have to wait for somebody's commit, and of those that
    share a key or a name with one of them: their order stays. Retries go by the first job of their
    lineage, which never changes: one of them may be active.
    """
    origins = [new.retry_of for _, group in wanted for new in group if new.retry_of is not None]
    known = await _by_id(connection, origins) if origins else {}
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


def _hold(places: dict[K, JobRow], place: K, row: JobRow) -> None:
    """An active job has this place to itself; one that ended leaves it."""
    if not row.final:
        places[place] = row
    elif place in places and places[place].id == row.id:
        del places[place]


class Desk:
    """Admits jobs one after the other, each meeting those before it, and writes them in runs."""

    def __init__(self, connection: Connection, batch: Batch) -> None:
        self._connection = connection
        self._batch = batch
        self._ids: dict[UUID, JobRow] = {}
        self._requests: dict[tuple[str, str], JobRow] = {}
        self._keys: dict[tuple[str, str, str], JobRow] = {}
        self._retries: dict[UUID, JobRow] = {}  # the active job of each lineage
        # Admitted, not yet written.
        self._run: list[tuple[JobRow, NewJob, JobRow | None, Admission]] = []
        self._stored: dict[UUID, JobRow] = {}  # as they came to be
        self._fresh: set[UUID] = set()  # jobs that were not there before this call
        self._parents_named: set[UUID] = set()
        self._gated: set[UUID] = set()  # those of them that have to pass a gate

    async def look_up(self, wanted: Sequence[NewJob]) -> None:
        """Read every job that these could meet; those that may have to give way are locked."""
        fetch = self._connection.fetch
        origins = [new.retry_of for new in wanted if new.retry_of is not None]
        self._ids |= await _by_id(self._connection, chain((new.id for new in wanted), origins))
        requests = {(new.owner, new.request_id) for new in wanted if new.request_id is not None}
        if requests:
            for record in await fetch(SQL.jobs_by_request, *rows.columns(requests)):
                self._remember(rows.job_row(record))
        keys = {(n.owner, n.task, n.unique_key) for n in wanted if n.unique_key is not None}
        if keys:
            for record in await fetch(SQL.active_by_key, *rows.columns(keys)):
                self._remember(rows.job_row(record))
            await self._lock_waiting(wanted)
        lineages = {self._ids[origin].lineage for origin in origins if origin in self._ids}
        if lineages:
            for record in await fetch(SQL.active_of_lineage, sorted(lineages)):
                self._remember(rows.job_row(record))
        # After those that may have to be waited for: these are left out if somebody has them.
        self._parents_named = {id_ for new in wanted for id_ in new.depends_on}
        await self._batch.load(self._parents_named)

    async def _lock_waiting(self, wanted: Sequence[NewJob]) -> None:
        """Those that may have to give way. One that runs does not: its worker needs the row."""
        places = {(new.owner, new.task, new.unique_key) for new in wanted if new.debounce}
        rivals = [row for place, row in self._keys.items() if place in places]
        waiting = [row.id for row in rivals if row.state is not State.RUNNING]
        if waiting:
            await self._batch.lose(waiting)
            for row in (await _by_id(self._connection, waiting)).values():
                self._remember(row)

    def _remember(self, row: JobRow) -> None:
        self._ids[row.id] = row
        if row.request_id is not None:
            self._requests[row.owner, row.request_id] = row
        if row.unique_key is not None:
            _hold(self._keys, (row.owner, row.task, row.unique_key), row)
        if row.root_id is not None:
            _hold(self._retries, row.root_id, row)

    def rivals(self, new: NewJob) -> Rivals:
        request, key = new.request_id, new.unique_key
        origin = self._ids.get(new.retry_of) if new.retry_of is not None else None
        return Rivals(
            same_id=self._ids.get(new.id),
            same_request=None if request is None else self._requests.get((new.owner, request)),
            same_key=None if key is None else self._keys.get((new.owner, new.task, key)),
            origin=origin,
            active_retry=None if origin is None else self._retries.get(origin.lineage),
            parents=self._parents(new.depends_on),
        )

    def _parents(self, ids: Sequence[UUID]) -> dict[UUID, Parent]:
        """Those that were locked, or came to be in this call."""
        seen: dict[UUID, Parent] = {}
        for id_ in ids:
            kept = self._batch.find(id_)
            if kept is not None:
                seen[id_] = Parent(id_, kept.owner, kept.row.state)
            elif id_ in self._fresh:
                row = self._ids[id_]
                seen[id_] = Parent(id_, row.owner, row.state)
        return seen

    async def enqueue(self, wanted: Sequence[NewJob]) -> list[Enqueued]:
        """Jobs of which nothing is wrong in itself."""
        answers: list[Enqueued | None] = []
        for new in wanted:
            rivals = self.rivals(new)
            verdict = admit(new, rivals)
            if verdict.status is not EnqueueStatus.CREATED or verdict.existing is not None:
                await self._flush()
                known = verdict.existing and self._ids[verdict.existing.id]
                answers.append(_answer(new, replace(verdict, existing=known)))
                continue
            if verdict.displace is not None:
                await self._displace(verdict.displace)
                verdict = admit(new, self.rivals(new))  # it may depend on what that ended
            origin = rivals.origin if new.retry_of is not None else None
            root = origin.lineage if origin else None
            row = jobs.birth(new, self._batch.now, 0, root, verdict.waiting_for)
            if origin is not None and new.resume:
                row = replace(row, last_step=origin.last_step)
            self._run.append((row, new, origin, verdict))
            self._fresh.add(row.id)
            self._remember(row)
            answers.append(None)
            if verdict.lost is not None:
                await self._end_with(row.id, verdict.lost)
        await self._flush()
        return [
            Enqueued(EnqueueStatus.CREATED, new, existing=self._stored[new.id])
            if answer is None
            else answer
            for new, answer in zip(wanted, answers, strict=True)
        ]

    async def as_they_stand(self, answers: Sequence[Enqueued]) -> list[Enqueued]:
        """Once the gates were looked at: some have passed."""
        if not self._gated:
            return list(answers)
        found = await _by_id(self._connection, self._gated)
        return [
            answer
            if answer.existing is None or answer.existing.id not in found
            else replace(answer, existing=found[answer.existing.id])
            for answer in answers
        ]

    async def _end_with(self, job_id: UUID, lost: Parent) -> None:
        """What it depends on was lost before it came."""
        await self._flush()
        await self._batch.load([job_id])
        kept = self._batch.find(job_id)
        assert kept is not None
        told = decide.parent_ended(kept.row, lost.id, lost.state, self._batch.now)
        self._batch.write(kept, told)
        await self._batch.flush()
        for row in (await _by_id(self._connection, [job_id])).values():
            self._stored[job_id] = row
            self._remember(row)

    async def _displace(self, row: JobRow) -> None:
        """A waiting job, locked when it was looked up or stored just now, gives way."""
        await self._flush()
        await self._batch.lose([row.id])
        kept = self._batch.find(row.id)
        if kept is None or kept.row.state is State.RUNNING:
            raise Overtaken
        self._batch.write(kept, decide.cancel(kept.row, give_way(row), self._batch.now))
        await self._batch.flush()
        for fresh in (await _by_id(self._connection, [row.id])).values():
            self._remember(fresh)
        await self._batch.load(self._parents_named)  # some may have been queued, and let go

    async def _flush(self) -> None:
        """Write the jobs admitted so far, with their keys, and what retries copy and mark."""
        run, self._run = self._run, []
        if not run:
            return
        connection = self._connection
        given = [
            rows.insertion(new, row.root_id, row.last_step, row.waiting_for) for row, new, *_ in run
        ]
        made = await _insert(connection, given, self._batch.now, gated=True)
        if len(made) < len(run):
            raise Overtaken
        for row, new, origin, _ in run:
            n, its = made[row.id].serial, made[row.id]
            stored = replace(row, serial=n, position=its.position, gates=its.gates)
            if its.gates:
                self._batch.look_at(its.gates)
                self._gated.add(row.id)
            self._stored[row.id] = stored
            self._remember(stored)
            if origin is not None:
                await connection.execute(SQL.set_retried_as, origin.serial, row.id)
                self._remember(replace(self._ids[origin.id], retried_as=row.id))
                if new.resume:
                    await connection.execute(SQL.copy_steps, n, origin.serial)
        keys = [
            (row.owner, row.task, row.unique_key, made[row.id].serial)
            for row, *_ in run
            if row.unique_key is not None
        ]
        if keys:
            await connection.execute(SQL.insert_keys, *rows.columns(keys))
        await self._link(run)
        self._batch.work = True

    async def _link(self, run: Sequence[tuple[JobRow, NewJob, JobRow | None, Admission]]) -> None:
        edges: list[Edge] = []
        for row, new, _, verdict in run:
            child, waits_for = self._stored[row.id].serial, set(verdict.waits_for)
            for place, parent in enumerate(new.depends_on):
                kept = self._batch.find(parent)
                n = kept.n if kept is not None else self._stored[parent].serial
                edges.append((child, row.id, n, parent, place, parent in waits_for))
        if edges:
            await self._batch.link(edges)


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
