"""The writes, as functions of a transaction: look up, let the core decide, write what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import apsw

from windlass.core import decide, transition
from windlass.core import job as jobs
from windlass.core.clock import SECOND, Instant, minute_of
from windlass.core.enqueue import Enqueued, EnqueueStatus, Rivals, admit, give_way, refusal
from windlass.core.errors import RequestError
from windlass.core.job import JobRow, NewJob, Standing
from windlass.core.lease import DEFAULT_LEASE, Claim, Extended, Lease
from windlass.core.records import PAUSED
from windlass.core.state import State, Trigger
from windlass.core.transition import Answer, CancelRequest, Decision, Status, Transition
from windlass.store import Saying
from windlass.stores.sql.log import log_insertion
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.transaction import Tx

MISSING = Answer(Status.MISSING)
SUCCEEDED = Answer(Status.APPLIED, State.SUCCEEDED)


def load(connection: apsw.Connection, sql: str, parameters: tuple[object, ...]) -> JobRow | None:
    found = first(connection, sql, parameters)
    return None if found is None else whole(connection, found)


def whole(connection: apsw.Connection, row: Row) -> JobRow:
    """The job with its payload, wherever that lies."""
    if not rows.needs_payload(row):
        return rows.job_row(row)
    return rows.job_row(row, single(connection, SQL.get_payload, (row[0],)))


# -- enqueue


def enqueue(tx: Tx, wanted: Sequence[NewJob]) -> list[Enqueued]:
    now = tx.now()
    lowest = tx.arrivals(len(wanted))
    answers: list[Enqueued] = []
    run: list[Row] = []  # plain jobs in a row, written together
    for serial, new in enumerate(wanted, lowest):
        try:
            jobs.check(new)
        except RequestError as error:
            answers.append(Enqueued(EnqueueStatus.REFUSED, new, error=error))
            continue
        if new.plain and len(new.payload) <= rows.INLINE_PAYLOAD:
            run.append(rows.insertion(new, now, serial, None, None))
            answers.append(Enqueued(EnqueueStatus.CREATED, new, now, serial))
        else:
            _insert(tx, run, answers)
            run = []
            answers.append(_enqueue_keyed(tx, new, now, serial))
    _insert(tx, run, answers)
    tx.work = True
    return answers


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


def _enqueue_keyed(tx: Tx, new: NewJob, now: Instant, serial: int) -> Enqueued:
    connection = tx.connection
    rivals = _rivals(connection, new)
    verdict = admit(new, rivals)
    if verdict.status is not EnqueueStatus.CREATED or verdict.existing is not None:
        return Enqueued(verdict.status, new, existing=verdict.existing, error=verdict.error)
    if verdict.displace is not None:
        cancel_one(tx, give_way(verdict.displace), now)
    origin = rivals.origin if new.retry_of is not None else None
    root_id = origin.lineage if origin else None
    last_step = origin.last_step if origin and new.resume else None
    connection.execute(SQL.insert_job, rows.insertion(new, now, serial, root_id, last_step))
    if len(new.payload) > rows.INLINE_PAYLOAD:
        connection.execute(SQL.insert_payload, (serial, new.payload))
    if origin is not None:
        connection.execute(SQL.set_retried_as, (new.id.bytes, origin.serial))
        if new.resume:
            connection.execute(SQL.copy_steps, (serial, origin.serial))
    stored = load(connection, SQL.get_job, (new.id.bytes,))
    return Enqueued(EnqueueStatus.CREATED, new, existing=stored)


def _rivals(connection: apsw.Connection, new: NewJob) -> Rivals:
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
    )


# -- running


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
    taken = [whole(connection, row) for row in found]
    for row in taken:
        tx.touch(row.id)
    taken.sort(key=lambda row: (place.get(row.queue, 0), -row.priority, row.position or 0))
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


class _Batch:
    """A batch of decisions: rows read in one statement, plain changes written in one.

    A row is used once from what was read together; whoever comes back to it, or comes after
    children were written, sees it as it is by then.
    """

    def __init__(self, tx: Tx, ids: Sequence[UUID]) -> None:
        self._tx = tx
        self._found: dict[UUID, Row] = {}
        if len(ids) > 1:
            keys = {job_id.bytes: job_id for job_id in ids}
            wanted = apsw.carray(tuple(keys))
            read = every(tx.connection, SQL.standings, (wanted,))
            self._found = {keys[row[-1]]: row for row in read}
        self._pending: list[list[Any]] = []
        self._tallies: dict[tuple[Any, ...], list[int]] = {}

    def standing(self, job_id: UUID) -> tuple[Row, Standing] | None:
        row = self._found.pop(job_id, None)
        if row is None:
            self.flush()
            row = first(self._tx.connection, SQL.standing, (job_id.bytes,))
        return None if row is None else (row, rows.standing(row, job_id))

    def write(self, found: Row, row: Standing, decision: Decision, now: Instant) -> Answer:
        if decision.children:
            self.flush()
            error = refusal(decision.children, partial(_rivals, self._tx.connection))
            if error is not None:
                return Answer(Status.REFUSED, row.state, error)
        if decision.changes:
            self._write(found, row.id, decision)
        tally = decision.tally
        if tally is not None:
            self.count((now, row.queue, row.task, tally.outcome), 1, tally.wait, tally.run)
        return decision.answer

    def count(self, key: tuple[Instant, str, str, State], n: int, wait: int, run: int) -> None:
        now, *rest = key
        sums = self._tallies.setdefault((minute_of(now), *rest), [0, 0, 0])
        sums[0] += n
        sums[1] += wait
        sums[2] += run

    def _write(self, found: Row, job_id: UUID, decision: Decision) -> None:
        tx, n = self._tx, found[0]
        position = tx.position() if decision.queue else None
        self._pending.append(
            rows.saved(found, decision.changes, position, logged=bool(decision.log))
        )
        for line in decision.log:
            tx.connection.execute(SQL.insert_log, log_insertion(n, line))
        for point in decision.checkpoints:
            values = (n, point.step, point.value, point.attempt, point.at)
            tx.connection.execute(SQL.put_step, values)
        if decision.children:
            self.flush()
            self._found.clear()
            enqueue(tx, decision.children)
        tx.touch(job_id)
        tx.work = tx.work or decision.queue

    def flush(self) -> None:
        if self._pending:
            self._tx.connection.executemany(SQL.save, self._pending)
            self._pending = []

    def finish(self) -> None:
        self.flush()
        for key, sums in self._tallies.items():
            self._tx.connection.execute(SQL.add_rollup, (*key, *sums))


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
    batch = _Batch(tx, [wish.job_id for wish in valid.values()])
    for queue, task, *sums in counted:
        batch.count((now, queue, task, State.SUCCEEDED), *sums)
    for place, wish in valid.items():
        found = batch.standing(wish.job_id)
        if found is not None:
            decision = decide.decide(found[1], wish, now, _Past(tx.connection, found[0][0]))
            answers[place] = batch.write(*found, decision, now)
    batch.finish()
    return answers


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
    batch = _Batch(tx, [saying.lease.job_id for saying in sayings])
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
            answers.append(cancel_one(tx, request, tx.now()))
        except RequestError as error:
            answers.append(Answer(Status.REFUSED, error=error))
    return answers


def cancel_one(tx: Tx, request: CancelRequest, now: Instant) -> Answer:
    batch = _Batch(tx, [])
    found = batch.standing(request.job_id)
    if found is None or not _owned(tx.connection, request.job_id, request.owner):
        return MISSING
    answer = batch.write(*found, decide.cancel(found[1], request, now), now)
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
    for sql in (SQL.delete_log, SQL.delete_steps, SQL.delete_payload, SQL.delete_job):
        tx.connection.execute(sql, (n,))
