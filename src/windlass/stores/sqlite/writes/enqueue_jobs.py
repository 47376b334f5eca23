"""Putting in: plain jobs in runs, jobs that may meet others one by one."""

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
    Enqueued,
    EnqueueStatus,
    Rivals,
    admit,
    give_way,
    refused,
)
from windlass.core.errors import RequestError
from windlass.core.job import row as jobs
from windlass.core.job.dependency import Parent
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.batch import Batch, link, parents
from windlass.stores.sqlite.writes.positions import Turns, line_of
from windlass.stores.sqlite.writes.transaction import Tx


def load(connection: apsw.Connection, sql: str, parameters: tuple[object, ...]) -> JobRow | None:
    found = first(connection, sql, parameters)
    return None if found is None else whole(connection, found)


def whole(connection: apsw.Connection, row: Row) -> JobRow:
    """The job with its payload, wherever that lies."""
    if not rows.needs_payload(row):
        return rows.job_row(row)
    return rows.job_row(row, single(connection, SQL.get_payload, (row[0],)))


def together(tx: Tx, wanted: Sequence[NewJob]) -> list[Enqueued]:
    """All of them, or none."""
    error = refused(wanted, partial(rivals, tx.connection))
    if error is not None:
        return [Enqueued(EnqueueStatus.REFUSED, new, error=error) for new in wanted]
    return enqueue(tx, wanted)


def enqueue(tx: Tx, wanted: Sequence[NewJob]) -> list[Enqueued]:
    answers = put(tx, wanted)
    if not tx.knocks:
        return answers
    passed = gates.open_gates(tx, tx.now())
    met = any(answer.existing is not None for answer in answers)
    numbers = [n for n in map(_number, answers) if met or n in passed]
    found = (
        every(tx.connection, SQL.numbered, (apsw.carray(array("q", numbers)),)) if numbers else []
    )
    news = {row[0]: row for row in found}
    return [
        replace(answer, existing=whole(tx.connection, row))
        if (row := news.get(_number(answer)))
        else answer
        for answer in answers
    ]


def _number(answer: Enqueued) -> int:
    return answer.serial if answer.existing is None else answer.existing.serial


def put(tx: Tx, wanted: Sequence[NewJob]) -> list[Enqueued]:
    """Store them; their gates are for the caller to look at."""
    now, limited = tx.now(), tx.limited()
    keyed = any(new.limit_key is not None for new in wanted)
    taken = _taken(tx.connection, wanted) if keyed or limited else frozenset()
    answers: list[Enqueued] = []
    run: list[Row] = []  # jobs in a row that meet no others, written together
    turns = Turns(tx.connection)
    for new in wanted:
        try:
            jobs.check(new)
        except RequestError as error:
            answers.append(Enqueued(EnqueueStatus.REFUSED, new, error=error))
            continue
        if not new.plain or len(new.payload) > rows.INLINE_PAYLOAD or (taken and new.id in taken):
            _insert(tx, run, answers)
            run, turns = [], Turns(tx.connection)
            answers.append(_enqueue_keyed(tx, new, now))
            continue
        serial = tx.arrival()
        its_gates = gates_of(new.queue, new.task, new.limit_key, limited) if limited else ()
        place = _place(turns, new, its_gates, serial, now) if keyed else serial
        tx.knocks.update(its_gates)
        run.append(rows.insertion(new, now, serial, gates=its_gates, place=place))
        answers.append(
            Enqueued(EnqueueStatus.CREATED, new, now, serial, gates=its_gates, place=place)
        )
    _insert(tx, run, answers)
    tx.work = True
    return answers


def _taken(connection: apsw.Connection, wanted: Sequence[NewJob]) -> frozenset[UUID]:
    """The ids that a job has already, or that come twice: a place is given to nobody in vain."""
    ids = {new.id.bytes: new.id for new in wanted}
    if len(ids) < len(wanted):
        return frozenset(ids.values())
    found = every(connection, SQL.taken, (apsw.carray(tuple(ids)),)) if ids else []
    return frozenset(ids[known] for (known,) in found)


def _place(turns: Turns, new: NewJob, its_gates: tuple[str, ...], serial: int, now: Instant) -> int:
    """Where it stands, if it does so at once: in line, or before its first gate."""
    if not rows.at_once(new) and jobs.opening(new, now).state is not State.QUEUED:
        return serial
    line = line_of(new.queue, its_gates[0] if its_gates else None, new.priority)
    return turns.place(line, new.limit_key, serial)


def _insert(tx: Tx, run: list[Row], answers: list[Enqueued]) -> None:
    """Write plain jobs; if any id was taken, find out which and answer for them anew."""
    if not run:
        return
    connection = tx.connection
    before = connection.total_changes()
    connection.executemany(SQL.insert_job, run)
    if connection.total_changes() - before == len(run):
        return
    for place, answer in enumerate(answers):
        if answer.status is EnqueueStatus.CREATED and answer.existing is None:
            found = load(connection, SQL.get_job, (answer.new.id.bytes,))
            assert found is not None
            if found.serial != answer.serial:
                verdict = admit(answer.new, Rivals(same_id=found))
                answers[place] = Enqueued(
                    verdict.status, answer.new, existing=verdict.existing, error=verdict.error
                )


def _enqueue_keyed(tx: Tx, new: NewJob, now: Instant) -> Enqueued:
    connection = tx.connection
    met = rivals(connection, new)
    verdict = admit(new, met)
    if verdict.status is not EnqueueStatus.CREATED or verdict.existing is not None:
        return Enqueued(verdict.status, new, existing=verdict.existing, error=verdict.error)
    if verdict.displace is not None:
        _displace(tx, verdict.displace, now)
        verdict = admit(new, rivals(connection, new))  # it may depend on what that ended
    serial = tx.arrival()  # whom that set free stands before it
    origin = met.origin if new.retry_of is not None else None
    root_id = origin.lineage if origin else None
    last_step = origin.last_step if origin and new.resume else None
    its_gates = gates_of(new.queue, new.task, new.limit_key, tx.limited())
    values = rows.insertion(
        new,
        now,
        serial,
        root_id=root_id,
        last_step=last_step,
        waiting_for=verdict.waiting_for,
        gates=its_gates,
        place=_place(Turns(connection), new, its_gates, serial, now),
    )
    connection.execute(SQL.insert_job, values)
    tx.knocks.update(its_gates)
    if len(new.payload) > rows.INLINE_PAYLOAD:
        connection.execute(SQL.insert_payload, (serial, new.payload))
    if origin is not None:
        connection.execute(SQL.set_retried_as, (new.id.bytes, origin.serial))
        if new.resume:
            connection.execute(SQL.copy_steps, (serial, origin.serial))
    link(connection, serial, parents(connection, new.depends_on), verdict.waits_for)
    if verdict.lost is not None:
        _end_with(tx, new.id, verdict.lost, now)
    stored = load(connection, SQL.get_job, (new.id.bytes,))
    return Enqueued(EnqueueStatus.CREATED, new, existing=stored)


def _displace(tx: Tx, row: JobRow, now: Instant) -> None:
    batch = Batch(tx)
    found = batch.standing(row.id)
    assert found is not None
    batch.write(*found, decide.cancel(found[1], give_way(row), now), now)
    batch.finish()


def _end_with(tx: Tx, job_id: UUID, lost: Parent, now: Instant) -> None:
    batch = Batch(tx)
    found = batch.standing(job_id)
    assert found is not None
    batch.write(*found, decide.parent_ended(found[1], lost.id, lost.state, now), now)
    batch.finish()


def rivals(connection: apsw.Connection, new: NewJob) -> Rivals:
    def by_id(job_id: UUID | None) -> JobRow | None:
        return load(connection, SQL.get_job, (job_id.bytes,)) if job_id else None

    origin = by_id(new.retry_of)
    root = origin.lineage.bytes if origin else None
    return Rivals(
        same_id=by_id(new.id),
        same_request=load(connection, SQL.job_by_request, (new.owner, new.request_id))
        if new.request_id is not None
        else None,
        same_key=load(connection, SQL.active_by_key, (new.owner, new.task, new.unique_key))
        if new.unique_key is not None
        else None,
        origin=origin,
        active_retry=load(connection, SQL.active_of_lineage, (root,)) if root else None,
        parents={id_: it for id_, (_, it) in parents(connection, new.depends_on).items()},
    )
