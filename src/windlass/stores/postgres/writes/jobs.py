"""The writes about jobs that are there, as functions of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions import decide, transition
from windlass.core.decisions.enqueue import refusal
from windlass.core.decisions.transition import (
    Answer,
    CancelRequest,
    Decision,
    Signal,
    Status,
    Transition,
)
from windlass.core.errors import RequestError
from windlass.core.job.lease import DEFAULT_LEASE, Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.records import PAUSED
from windlass.store import Saying
from windlass.stores.postgres import maintenance, rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes import enqueue_jobs
from windlass.stores.postgres.writes.batch import Batch, Kept
from windlass.stores.postgres.writes.claim_cursor import Line, whole
from windlass.stores.postgres.writes.keyed_enqueue import Desk

TRIES = 3  # of a claim that finds nothing though there is something
MISSING = Answer(Status.MISSING)
BUSY = Answer(Status.BUSY)
SUCCEEDED = Answer(Status.APPLIED, State.SUCCEEDED)
# What ends a job without success, unless it is too late for that.
_LOSING = frozenset(
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


async def claim(
    connection: Connection,
    wish: Claim,
    now: Instant | None,
    line: Line,
    timeout: float | None = None,
) -> list[JobRow]:
    limits: dict[str, int] = {}
    for queue, limit in wish.queues:
        limits[queue] = limits.get(queue, 0) + limit
    limits = {queue: limit for queue, limit in limits.items() if limit}
    await line.ask(connection)
    parts = rows.columns(line.ranges(list(limits)))
    found = await _claim(connection, wish, now, limits, parts, timeout=timeout)
    taken = [rows.claimed(record, wish) for record in found]
    line.took(taken)
    place = {queue: index for index, queue in enumerate(limits)}
    taken.sort(key=attrgetter("position", "id"))
    if len({(row.queue, row.priority) for row in taken}) > 1:
        taken.sort(key=lambda row: (place.get(row.queue, 0), -row.priority))
    return taken


async def _claim(
    connection: Connection,
    wish: Claim,
    now: Instant | None,
    limits: Mapping[str, int],
    parts: Sequence[Sequence[object]],
    *,
    timeout: float | None,
) -> list[Row]:
    """From these parts of the line."""
    found: list[Row] = []
    for _ in range(TRIES):
        found = await connection.fetch(
            SQL.claim,
            now,
            wish.token,
            wish.worker,
            None if wish.lease is None else round(wish.lease * SECOND),
            round(DEFAULT_LEASE * SECOND),
            list(limits),
            list(limits.values()),
            PAUSED,
            *parts,
            timeout=timeout,
        )
        if found or not await _claimable(connection, parts, now):
            break
    return found


async def claimable(connection: Connection, queues: Sequence[str], now: Instant | None) -> bool:
    return await _claimable(connection, rows.columns(whole(queues)), now)


async def _claimable(
    connection: Connection, parts: Sequence[Sequence[object]], now: Instant | None
) -> bool:
    found: bool = await connection.fetchval(SQL.claimable, now, PAUSED, *parts)
    return found


# -- settling


def check(wishes: Sequence[Transition]) -> dict[int, Answer]:
    """The refusals, by place, of wishes that are wrong in themselves."""
    refused: dict[int, Answer] = {}
    for place, wish in enumerate(wishes):
        try:
            transition.check(wish)
        except RequestError as error:
            refused[place] = Answer(Status.REFUSED, error=error)
    return refused


async def apply(
    connection: Connection,
    wishes: Sequence[Transition],
    given: Instant | None,
    shard: int,
    *,
    room: Iterable[str] = (),
) -> tuple[list[Answer | None], Batch]:
    """In one transaction, in order, each decided by the core under its job's lock.

    None: an open transaction has the job, or a key that a child of it wants. Nothing was decided.
    `room` are gates that others of the call have left.
    """
    late = await enqueue_jobs.lock(connection, [(wish.job_id, wish.children) for wish in wishes])
    free = [wish for place, wish in enumerate(wishes) if place not in late]
    batch = await Batch.open(
        connection,
        given,
        shard,
        [wish.job_id for wish in free],
        done=[wish.job_id for wish in free if wish.trigger is Trigger.SUCCEED],
        lost=[wish.job_id for wish in free if wish.trigger in _LOSING],
        others={id_ for wish in free for id_ in _others(wish)},
    )
    batch.look_at(room)
    await _look_back(batch, wishes)
    answers: list[Answer | None] = []
    for place, wish in enumerate(wishes):
        if place in late or not batch.held.isdisjoint({wish.job_id, *_others(wish)}):
            answers.append(None)
            continue
        kept = await _found(batch, wish.job_id)
        if kept is None:
            answers.append(MISSING)
            continue
        past = partial(batch.past, kept.n)
        decision = decide.decide(kept.row, wish, batch.now, past)
        if decision.ends and batch.blocked(wish.job_id):
            answers.append(None)
        elif decision.children or decision.awaits:
            answers.append(await _hand_over(connection, batch, kept, decision))
        else:
            answers.append(batch.write(kept, decision))
    await batch.finish()
    return answers, batch


async def _found(batch: Batch, job_id: UUID) -> Kept | None:
    kept = batch.find(job_id)
    if kept is None:
        await batch.load([job_id])
        kept = batch.find(job_id)
    return kept


async def _look_back(batch: Batch, wishes: Sequence[Transition]) -> None:
    """Whoever settles late may only be repeating what the log already has."""
    late = set()
    for wish in wishes:
        kept = batch.find(wish.job_id)
        if kept is not None and wish.trigger.settles:
            row = kept.row
            if row.fence != wish.fence or row.state is not State.RUNNING:
                late.add((kept.n, wish.fence))
    await batch.look_back(late)


async def _hand_over(
    connection: Connection, batch: Batch, kept: Kept, decision: Decision
) -> Answer:
    """A success or a suspension with its children: all of it or nothing."""
    await batch.flush()
    desk = Desk(connection, batch)
    await desk.look_up(decision.children)
    error = refusal(decision.children, desk.rivals)
    if error is not None:
        return Answer(Status.REFUSED, kept.row.state, error)
    batch.note(kept, decision)
    await batch.flush()
    desk = Desk(connection, batch)  # the parent is over by now, and so is its key
    await desk.look_up(decision.children)
    await desk.enqueue(decision.children)
    if decision.awaits:
        return await _suspend(connection, batch, kept, decision.awaits)
    if decision.ends:  # after its children: these stand before whoever waited for it
        batch.tell(kept)
    return decision.answer


async def _suspend(
    connection: Connection, batch: Batch, kept: Kept, awaits: Sequence[UUID]
) -> Answer:
    """Have it wait for those of them that have not ended; the children are locked by being new."""
    await batch.flush()
    await batch.load(awaits)
    seen = [(id_, it) for id_ in awaits if (it := batch.find(id_)) is not None]
    waits_for = {id_ for id_, it in seen if not it.row.final and it.owner == kept.owner}
    place: int = await connection.fetchval(SQL.next_place, kept.n)
    await batch.link(
        [
            (kept.n, kept.row.id, it.n, id_, number, id_ in waits_for)
            for number, (id_, it) in enumerate(seen, place)
        ]
    )
    return batch.write(kept, decide.suspended(kept.row, len(waits_for), batch.now))


def _others(wish: Transition) -> set[UUID]:
    """The jobs beside its own that a wish makes somebody wait for; its children are not there."""
    if not wish.children and not wish.awaits:
        return set()
    parents = {id_ for child in wish.children for id_ in child.depends_on}
    return (parents | set(wish.awaits)) - {child.id for child in wish.children}


async def record(
    connection: Connection, sayings: Sequence[Saying], given: Instant | None, shard: int
) -> tuple[list[Answer | None], Batch]:
    """None: an open transaction has the job."""
    batch = Batch(connection, await connection.fetchval(SQL.now, given), shard)
    await batch.load(saying.lease.job_id for saying in sayings)
    answers: list[Answer | None] = []
    for saying in sayings:
        try:
            transition.check_records(saying.records)
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
            continue
        lease = saying.lease
        kept = batch.find(lease.job_id)
        if kept is None:
            answers.append(None if lease.job_id in batch.held else MISSING)
            continue
        said = decide.record(kept.row, lease.fence, lease.token, saying.records, batch.now)
        answers.append(batch.write(kept, said))
    await batch.finish()
    return answers, batch


# -- operators


async def cancel(
    connection: Connection, requests: Sequence[CancelRequest], given: Instant | None, shard: int
) -> tuple[list[Answer | None], Batch]:
    """None: an open transaction has the job."""
    ids = {request.job_id for request in requests}
    batch = await Batch.open(connection, given, shard, ids, lost=ids)
    answers: list[Answer | None] = []
    for request in requests:
        try:
            transition.check_cancel(request)
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
            continue
        if batch.blocked(request.job_id):
            answers.append(None)
            continue
        kept = await _found(batch, request.job_id)
        if kept is None or request.owner not in {None, kept.owner}:
            answers.append(MISSING)
            continue
        answers.append(batch.write(kept, decide.cancel(kept.row, request, batch.now)))
    await batch.finish()
    return answers, batch


async def signal(
    connection: Connection, signals: Sequence[Signal], given: Instant | None, shard: int
) -> tuple[list[Answer | None], Batch]:
    """None: an open transaction has the job."""
    batch = Batch(connection, await connection.fetchval(SQL.now, given), shard)
    await batch.load(given_.job_id for given_ in signals)
    wanted = [(kept.n, one.step) for one in signals if (kept := batch.find(one.job_id)) is not None]
    known = await connection.fetch(SQL.known_steps, *rows.columns(wanted)) if wanted else []
    there = {(n, step) for n, step in known}
    answers: list[Answer | None] = []
    for one in signals:
        try:
            transition.check_signal(one)
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
            continue
        if one.job_id in batch.held:
            answers.append(None)
            continue
        kept = await _found(batch, one.job_id)
        if kept is None or one.owner not in {None, kept.owner}:
            answers.append(MISSING)
            continue
        place = (kept.n, one.step)
        told = decide.signal(kept.row, one, batch.now, known=place in there)
        answers.append(batch.write(kept, told))
        if told.answer.applied:
            there.add(place)
    await batch.finish()
    return answers, batch


async def delete(
    connection: Connection, ids: Sequence[UUID], owner: str | None
) -> tuple[list[Answer], Batch]:
    batch = Batch(connection, 0, 0)
    await batch.load(ids, wait=True)
    answers, gone = [], set()
    for job_id in ids:
        kept = batch.find(job_id)
        if kept is None or owner not in {None, kept.owner} or kept.n in gone:
            answers.append(MISSING)
        elif not kept.row.final:
            answers.append(Answer(Status.CONFLICT, kept.row.state))
        else:
            gone.add(kept.n)
            batch.touched.append(job_id)
            answers.append(Answer(Status.APPLIED, kept.row.state))
    await maintenance.forget(connection, sorted(gone))
    return answers, batch
