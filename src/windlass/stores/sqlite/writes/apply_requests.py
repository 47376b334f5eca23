"""Applies transitions, cancels, signals and records: reads rows, lets the core decide, writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import apsw

from windlass.core.clock import Instant, minute_of
from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import batch_conflict
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    Decision,
    Status,
    Transition,
    check_records,
    check_request,
)
from windlass.core.errors import RequestError
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import State, Trigger
from windlass.store import AttemptRecords
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import OWNER, N, Row
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.batch import SqliteBatch
from windlass.stores.sqlite.writes.enqueue_jobs import find_conflicts, insert_jobs
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction

MISSING = ApplyResult(Status.MISSING)
SUCCEEDED = ApplyResult(Status.APPLIED, State.SUCCEEDED)


def apply(tx: WriteTransaction, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
    now = tx.now()
    valid: dict[int, ApplyRequest] = {}
    results: list[ApplyResult] = []
    for index, request in enumerate(requests):
        try:
            check_request(request)
            valid[index] = request
            results.append(MISSING)
        except RequestError as error:
            results.append(ApplyResult(Status.REFUSED, error=error))
    _succeed(tx, valid, results, now)
    if valid:
        _decide(tx, valid, results, now)
    if tx.gates_to_check or tx.may_release or tx.ended:
        gates.open_gates(tx, now)
    return results


def _decide(
    tx: WriteTransaction,
    requests: dict[int, ApplyRequest],
    results: list[ApplyResult],
    now: Instant,
) -> None:
    """Apply requests one by one: read the row, let the core decide, write the decision."""
    batch = SqliteBatch(tx, [request.job_id for request in requests.values()])
    for index, request in requests.items():
        found = batch.lifecycle(request.job_id)
        if found is not None:
            stored = SqliteStoredJob(tx.connection, found[0])
            results[index] = _write(
                tx, batch, found, decide.decide(found[1], request, now, stored), now
            )
    batch.finish()


def _write(
    tx: WriteTransaction,
    batch: SqliteBatch,
    found: tuple[Row, LifecycleRow],
    decision: Decision,
    now: Instant,
) -> ApplyResult:
    """Write a decision with its children and the jobs that it awaits; refuse it on a conflict."""
    if decision.children:
        batch.flush()
        error = batch_conflict(decision.children, partial(find_conflicts, tx.connection))
        if error is not None:
            return ApplyResult(Status.REFUSED, found[1].state, error)
    result = batch.write(*found, decision, now)
    if decision.children:
        batch.invalidate()
        insert_jobs(tx, decision.children)
        batch.update_dependents(now)
    if decision.awaits:
        result = batch.suspend(found[1].id, decision.awaits, now)
    return result


def _succeed(
    tx: WriteTransaction, valid: dict[int, ApplyRequest], results: list[ApplyResult], now: Instant
) -> None:
    """Settle plain successes, and remove them from `valid`."""
    plain: dict[int, bytes] = {}
    groups: dict[tuple[bytes | None, int, UUID], list[bytes]] = {}
    children = False
    for index, request in valid.items():
        if not isinstance(request, Transition):
            continue
        children = children or bool(request.children)
        if request.trigger is Trigger.SUCCEED and request.token and not request.records:
            key = plain[index] = request.job_id.bytes
            groups.setdefault((request.result, request.fence, request.token), []).append(key)
    distinct = len({request.job_id for request in valid.values()}) == len(valid)
    if not (plain and distinct) or children:
        return  # order matters if a job occurs twice, or children may conflict with it
    values = [
        (now, result, apsw.carray(tuple(ids)), fence, token.bytes)
        for (result, fence, token), ids in groups.items()
    ]
    connection = tx.connection
    if not _all_or_none(connection, SQL.succeed, values, len(plain)):
        return
    for index in plain:
        results[index] = SUCCEEDED
        job_id = valid.pop(index).job_id
        if tx.changed_jobs is not None:
            tx.changed_jobs.append(job_id)
    ids = apsw.carray(tuple(plain.values()))
    for gated, numbers, queue, task, *sums in fetch_all(connection, SQL.success_totals, (ids,)):
        if gated != "[]":
            tx.jobs_ended(json.loads(numbers), json.loads(gated))
        rollup = (minute_of(now), queue, task, State.SUCCEEDED, *sums)
        connection.execute(SQL.add_rollup, rollup)


def _all_or_none(
    connection: apsw.Connection, sql: str, values: list[Row], rows_changed: int
) -> bool:
    """Run a statement for each value; undo it and return False on another number of changes."""
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


class SqliteStoredJob:
    """Data of a job outside its lifecycle row, for `decide`."""

    __slots__ = ("_connection", "_n", "owner")

    def __init__(self, connection: apsw.Connection, row: Row) -> None:
        self._connection = connection
        self._n = row[N]
        self.owner: str = row[OWNER]

    def past_outcome(self, fence: int) -> tuple[UUID, Trigger] | None:
        data = fetch_value(self._connection, SQL.past_outcome, (self._n, fence))
        if data is None:
            return None
        decoded = json.loads(data)
        return UUID(decoded["token"]), Trigger(decoded["outcome"])

    def has_step(self, step: str) -> bool:
        return fetch_one(self._connection, SQL.has_step, (self._n, step)) is not None


def record(tx: WriteTransaction, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
    batch = SqliteBatch(tx, [entry.lease.job_id for entry in attempt_records])
    results = []
    for entry in attempt_records:
        lease = entry.lease
        try:
            check_records(entry.records)
        except RequestError as error:
            results.append(ApplyResult(Status.REFUSED, error=error))
            continue
        found = batch.lifecycle(lease.job_id)
        if found is None:
            results.append(MISSING)
            continue
        now = tx.now()
        decision = decide.record(found[1], lease.fence, lease.token, entry.records, now)
        results.append(batch.write(*found, decision, now))
    batch.finish()
    return results
