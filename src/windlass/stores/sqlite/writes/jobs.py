"""The writes about jobs that are there: look up, let the core decide, write what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import apsw

from windlass.core.admission.gates import line_order
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
from windlass.core.job.lease import DEFAULT_LEASE, Claim, Extended, Lease
from windlass.core.job.row import JobRow, Standing
from windlass.core.job.state import State, Trigger
from windlass.core.records import PAUSED
from windlass.store import Saying
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.batch import Batch
from windlass.stores.sqlite.writes.enqueue_jobs import load, put, rivals, whole
from windlass.stores.sqlite.writes.transaction import Tx

MISSING = Answer(Status.MISSING)
SUCCEEDED = Answer(Status.APPLIED, State.SUCCEEDED)


def claim(tx: Tx, wish: Claim) -> list[JobRow]:
    connection = tx.connection
    place = {queue: index for index, (queue, _) in enumerate(wish.queues)}
    found = every(connection, SQL.claimed_by, (wish.token.bytes,))
    if not found:
        now = tx.now()
        for queue, limit in wish.queues:
            if limit and not first(connection, SQL.paused, (PAUSED, queue, now)):
                found += every(
                    connection,
                    SQL.claim,
                    {
                        "token": wish.token.bytes,
                        "worker": wish.worker,
                        "now": now,
                        "lease": None if wish.lease is None else round(wish.lease * SECOND),
                        "default_lease": round(DEFAULT_LEASE * SECOND),
                        "queue": queue,
                        "limit": limit,
                    },
                )
        gates.note_starts(tx, found, now)
    taken = [whole(connection, row) for row in found]
    for row in taken:
        tx.touch(row.id)
    taken.sort(key=lambda row: (place.get(row.queue, 0), *line_order(row)))
    return taken


def extend(tx: Tx, leases: Sequence[Lease], seconds: float) -> list[Extended]:
    until = tx.now() + round(seconds * SECOND)
    answers = []
    for lease in leases:
        found = first(
            tx.connection, SQL.extend, (until, lease.job_id.bytes, lease.fence, lease.token.bytes)
        )
        if found is None:
            answers.append(Extended(lease_until=None))
        else:
            lasts, cancel_at = found
            answers.append(Extended(lease_until=lasts, cancel_requested=cancel_at is not None))
    return answers


def apply(tx: Tx, wishes: Sequence[Transition]) -> list[Answer]:
    now = tx.now()
    valid: dict[int, Transition] = {}
    answers: list[Answer] = []
    for place, wish in enumerate(wishes):
        try:
            transition.check(wish)
            valid[place] = wish
            answers.append(MISSING)
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
    counted = _succeed(tx, valid, answers, now)
    batch = Batch(tx, [wish.job_id for wish in valid.values()])
    for gated, numbers, queue, task, *sums in counted:
        tx.end(json.loads(numbers), json.loads(gated))
        batch.count((now, queue, task, State.SUCCEEDED), *sums)
    for place, wish in valid.items():
        found = batch.standing(wish.job_id)
        if found is not None:
            decision = decide.decide(found[1], wish, now, _Past(tx.connection, found[0][0]))
            answers[place] = _write(tx, batch, found, decision, now)
    batch.finish()
    gates.open_gates(tx, now)
    return answers


def _write(
    tx: Tx, batch: Batch, found: tuple[Row, Standing], decision: Decision, now: Instant
) -> Answer:
    """A decision with its children, if they can all be, and with what it awaits."""
    if decision.children:
        batch.flush()
        error = refusal(decision.children, partial(rivals, tx.connection))
        if error is not None:
            return Answer(Status.REFUSED, found[1].state, error)
    answer = batch.write(*found, decision, now)
    if decision.children:
        batch.forget()
        put(tx, decision.children)
        batch.tell_dependents(now)
    if decision.awaits:
        answer = batch.suspend(found[1].id, decision.awaits, now)
    return answer


def _succeed(
    tx: Tx, valid: dict[int, Transition], answers: list[Answer], now: Instant
) -> list[Row]:
    """Settle the plain successes of a batch and take them out of it; answer what to count."""
    plain: dict[int, bytes] = {}
    alike: dict[tuple[bytes | None, int, UUID], list[bytes]] = {}
    for place, wish in valid.items():
        token = wish.token
        if wish.trigger is Trigger.SUCCEED and token and not (wish.records or wish.children):
            key = plain[place] = wish.job_id.bytes
            alike.setdefault((wish.result, wish.fence, token), []).append(key)
    alone = len({wish.job_id for wish in valid.values()}) == len(valid)
    if not (plain and alone) or any(wish.children for wish in valid.values()):
        return []  # a job that comes twice, or children who may meet it, need their order
    values = [
        (now, result, apsw.carray(tuple(ids)), fence, token.bytes)
        for (result, fence, token), ids in alike.items()
    ]
    if not _all_or_none(tx.connection, SQL.succeed, values, len(plain)):
        return []
    for place in plain:
        answers[place] = SUCCEEDED
        tx.touch(valid.pop(place).job_id)
    return every(tx.connection, SQL.tallies, (apsw.carray(tuple(plain.values())),))


def _all_or_none(
    connection: apsw.Connection, sql: str, values: list[Row], rows_changed: int
) -> bool:
    """Run a statement for each; whether that changed so many rows. If not, it changed none."""
    before = connection.total_changes()
    if rows_changed == 1:
        connection.execute(sql, values[0])
        return connection.total_changes() > before
    connection.execute("SAVEPOINT windlass_all")
    connection.executemany(sql, values)
    done = connection.total_changes() - before == rows_changed
    if not done:
        connection.execute("ROLLBACK TO windlass_all")
    connection.execute("RELEASE windlass_all")
    return done


class _Past:
    """The outcome of a past attempt, asked for only when a settle comes late."""

    __slots__ = ("connection", "n")

    def __init__(self, connection: apsw.Connection, n: int) -> None:
        self.connection = connection
        self.n = n

    def __call__(self, fence: int) -> tuple[UUID, Trigger] | None:
        facts = single(self.connection, SQL.past_attempt, (self.n, fence))
        if facts is None:
            return None
        said = json.loads(facts)
        return UUID(said["token"]), Trigger(said["outcome"])


def record(tx: Tx, sayings: Sequence[Saying]) -> list[Answer]:
    batch = Batch(tx, [saying.lease.job_id for saying in sayings])
    answers = []
    for saying in sayings:
        lease = saying.lease
        try:
            transition.check_records(saying.records)
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
            continue
        found = batch.standing(lease.job_id)
        if found is None:
            answers.append(MISSING)
            continue
        now = tx.now()
        decision = decide.record(found[1], lease.fence, lease.token, saying.records, now)
        answers.append(batch.write(*found, decision, now))
    batch.finish()
    return answers


# -- operators


def cancel(tx: Tx, requests: Sequence[CancelRequest]) -> list[Answer]:
    answers = []
    for request in requests:
        try:
            transition.check_cancel(request)
            answers.append(_cancel(tx, request, tx.now()))
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
    gates.open_gates(tx, tx.now())
    return answers


def _cancel(tx: Tx, request: CancelRequest, now: Instant) -> Answer:
    batch = Batch(tx)
    found = batch.standing(request.job_id)
    if found is None or not _owned(tx.connection, request.job_id, request.owner):
        return MISSING
    answer = batch.write(*found, decide.cancel(found[1], request, now), now)
    batch.finish()
    return answer


def signal(tx: Tx, signals: Sequence[Signal]) -> list[Answer]:
    answers = []
    for given in signals:
        try:
            transition.check_signal(given)
            answers.append(_signal(tx, given, tx.now()))
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
    gates.open_gates(tx, tx.now())
    return answers


def _signal(tx: Tx, given: Signal, now: Instant) -> Answer:
    batch = Batch(tx)
    found = batch.standing(given.job_id)
    if found is None or not _owned(tx.connection, given.job_id, given.owner):
        return MISSING
    known = first(tx.connection, SQL.has_step, (found[0][0], given.step)) is not None
    answer = batch.write(*found, decide.signal(found[1], given, now, known=known), now)
    batch.finish()
    return answer


def _owned(connection: apsw.Connection, job_id: UUID, owner: str | None) -> bool:
    if owner is None:
        return True
    row = load(connection, SQL.get_job, (job_id.bytes,))
    return row is not None and row.owner == owner


def delete(tx: Tx, ids: Sequence[UUID], owner: str | None) -> list[Answer]:
    answers = []
    for job_id in ids:
        row = load(tx.connection, SQL.get_job, (job_id.bytes,))
        if row is None or owner not in {None, row.owner}:
            answers.append(MISSING)
        elif not row.final:
            answers.append(Answer(Status.CONFLICT, row.state))
        else:
            forget(tx, row.serial)
            answers.append(Answer(Status.APPLIED, row.state))
    return answers


def forget(tx: Tx, n: int) -> None:
    tx.remember()
    for sql in (
        SQL.delete_log, SQL.delete_steps, SQL.delete_edges, SQL.delete_payload, SQL.delete_job,
    ):  # fmt: skip
        tx.connection.execute(sql, (n,))
