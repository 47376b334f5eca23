"""The reads, as functions of a connection inside one snapshot, and what upkeep deletes."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from uuid import UUID

import apsw

from windlass.core import event, records
from windlass.core.admission.gates import LIMIT
from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import LogRow
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.failure import Failures
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL, State
from windlass.core.query import job_query
from windlass.core.query.job_query import Count, Page, Query
from windlass.core.records import PAUSED, Entry, Put, PutAnswer
from windlass.store import COUNT_CAP, COUNT_RANGE, EventPage, Pruned, QueueStats, Retention, Rollup
from windlass.stores.sql.failures import failures_of
from windlass.stores.sql.log import log_row
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.enqueue_jobs import load, whole
from windlass.stores.sqlite.writes.jobs import forget
from windlass.stores.sqlite.writes.transaction import Tx

STRETCH = 5_000  # jobs that one page of a filtered search looks at
_TROUBLE = frozenset({State.FAILED, State.CANCELED})
_NEWEST = 2**63 - 1


def get(connection: apsw.Connection, ids: Sequence[UUID], owner: str | None) -> list[JobRow | None]:
    found = (load(connection, SQL.get_job, (job_id.bytes,)) for job_id in ids)
    return [row if row is not None and owner in {None, row.owner} else None for row in found]


def find(connection: apsw.Connection, wanted: Query) -> Page:
    stretch = _stretch(connection, wanted, job_query.decode_cursor(wanted) or _NEWEST)
    matches = _matching(connection, wanted, stretch, wanted.limit + 1)
    numbers = matches[: wanted.limit]
    sql = SQL.numbered_bare if wanted.bare else SQL.numbered
    found = every(connection, sql, (apsw.carray(array("q", numbers)),)) if numbers else []
    page = [whole(connection, row) for row in sorted(found, key=itemgetter(0), reverse=True)]
    if len(matches) > wanted.limit:
        last: int | None = numbers[-1]
    else:
        last = stretch[-1] if len(stretch) == STRETCH else None
    return Page(page, job_query.encode_cursor(wanted, last) if last is not None else None)


def count(connection: apsw.Connection, wanted: Query) -> Count:
    number, before = 0, _NEWEST
    for _ in range(COUNT_RANGE // STRETCH):
        stretch = _stretch(connection, wanted, before)
        number += len(_matching(connection, wanted, stretch, COUNT_CAP + 1 - number))
        if number > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(stretch) < STRETCH:
            return Count(number, capped=False)
        before = stretch[-1]
    return Count(number, capped=True)


def _stretch(connection: apsw.Connection, wanted: Query, before: int) -> list[int]:
    """The jobs to look at next: the newest of those among which all that match must be."""
    trouble = bool(wanted.states) and wanted.states <= _TROUBLE
    sql = SQL.stretch_of_trouble if trouble else SQL.stretch
    bounds: tuple[object, ...] = (before, STRETCH)
    if wanted.root_id is not None:
        sql, bounds = SQL.stretch_of_lineage, (*bounds, wanted.root_id.bytes)
    elif wanted.flow_id is not None:
        sql, bounds = SQL.stretch_of_flow, (*bounds, wanted.flow_id.bytes)
    return [n for (n,) in every(connection, sql, bounds)]


def _matching(
    connection: apsw.Connection, wanted: Query, stretch: list[int], limit: int
) -> list[int]:
    return [n for (n,) in every(connection, SQL.matching, _filters(wanted, stretch, limit))]


def _filters(wanted: Query, stretch: list[int], limit: int) -> dict[str, object]:
    def among(values: Iterable[str]) -> str | None:
        chosen = sorted(values)
        return json.dumps(chosen) if chosen else None

    return {
        "stretch": json.dumps(stretch),
        "states": among(wanted.states),
        "queues": among(wanted.queues),
        "tasks": among(wanted.tasks),
        "tags": among(wanted.tags),
        "owner": wanted.owner,
        "team": wanted.team,
        "worker": wanted.worker,
        "error": wanted.error,
        "text": None if wanted.text is None else job_query.folded(wanted.text),
        "request_id": wanted.request_id,
        "unique_key": wanted.unique_key,
        "retry_of": wanted.retry_of.bytes if wanted.retry_of else None,
        "root_id": wanted.root_id.bytes if wanted.root_id else None,
        "flow_id": wanted.flow_id.bytes if wanted.flow_id else None,
        "created_from": wanted.created_from,
        "created_to": wanted.created_to,
        "limit": limit,
    }


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
    heads = gates.due(connection, now, limit)
    seen = {row[0] for row in heads}
    found = every(connection, SQL.due, {"now": now, "limit": limit})
    others = [row for row in found if row[0] not in seen]
    return [whole(connection, row) for row in [*heads, *others][:limit]]


def expired(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
    found = every(connection, SQL.expired, (now, limit))
    return [whole(connection, row) for row in found]


def prune(tx: Tx, retention: Retention, limit: int) -> Pruned:
    now, connection = tx.now(), tx.connection
    gone: list[tuple[Instant, int]] = []
    for state in FINAL:
        until = maintenance.kept_until(now, getattr(retention, state.value))
        if until is not None:
            found = every(connection, SQL.past_keeping, (state.value, until, limit))
            gone += [(ended, n) for n, ended in found]
    gone = sorted(gone)[:limit]
    for _, n in gone:
        forget(tx, n)
    until = maintenance.kept_until(now, retention.log)
    bare: list[int] = []
    if until is not None:
        bare = [n for (n,) in every(connection, SQL.logs_past_keeping, (until, limit))]
        for n in bare:
            connection.execute(SQL.delete_log, (n,))
            connection.execute(SQL.forget_log, (n,))
    dead = _delete(connection, SQL.delete_dead_records, now)
    gates.tidy(connection, now, limit)
    until = maintenance.kept_until(now, retention.rollups)
    old = 0 if until is None else _delete(connection, SQL.delete_old_rollups, until)
    return Pruned(len(gone), len(bare), dead, old)


def _delete(connection: apsw.Connection, sql: str, instant: Instant) -> int:
    connection.execute(sql, (instant,))
    return connection.changes()


def stats(connection: apsw.Connection, now: Instant) -> Mapping[str, QueueStats]:
    counts = _Counts()
    oldest: dict[str, Instant | None] = {}
    queue = single(connection, SQL.next_queue, ("",))
    while queue is not None:
        number = single(connection, SQL.count_line, (queue, COUNT_CAP + 1))
        counts.put(queue, State.QUEUED, number)
        oldest[queue] = single(connection, SQL.oldest_in_line, (queue, COUNT_CAP))
        queue = single(connection, SQL.next_queue, (queue,))
    waiting = first(connection, SQL.next_waiting, ("", ""))
    while waiting is not None:
        number = single(connection, SQL.count_waiting, (*waiting, COUNT_CAP + 1))
        counts.put(waiting[0], State(waiting[1]), number)
        waiting = first(connection, SQL.next_waiting, waiting)
    for queue, number in every(connection, SQL.count_running):
        counts.put(queue, State.RUNNING, number)
    paused = {entry.key for entry in list_records(connection, PAUSED, "", COUNT_CAP, now)}
    return {
        queue: QueueStats(
            counts={state: min(n, COUNT_CAP) for state, n in counts[queue].items()},
            capped=frozenset(state for state, n in counts[queue].items() if n > COUNT_CAP),
            oldest_queued_at=oldest.get(queue),
            paused=queue in paused,
        )
        for queue in sorted({*counts, *paused})
    }


def failures(
    connection: apsw.Connection, since: Instant, limit: int, whose: tuple[str | None, str | None]
) -> Failures:
    found = every(connection, SQL.failures, (since, limit + 1))
    return failures_of([(UUID(bytes=row[0]), *row[1:]) for row in found], limit, whose)


class _Counts(defaultdict[str, dict[State, int]]):
    def __init__(self) -> None:
        super().__init__(dict)

    def put(self, queue: str, state: State, number: int) -> None:
        self[queue][state] = number


def rollups(connection: apsw.Connection, since: Instant, until: Instant) -> list[Rollup]:
    return [
        Rollup(minute=m, queue=q, task=t, outcome=State(o), count=count, wait=wait, run=run)
        for m, q, t, o, count, wait, run in every(connection, SQL.rollups, (since, until))
    ]


def events(connection: apsw.Connection, job_id: UUID, after: int, limit: int) -> EventPage | None:
    row = load(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    after = max(after, 0)
    # The first of either sort; `event.page` stops where the numbers are no longer dense.
    said = _log(connection, SQL.said, (row.serial, after, limit))
    past = _log(connection, SQL.past_attempts, (row.serial, after, limit))
    found = event.page(row, [*said, *past], after, limit)
    last = found[-1].seq if found else after
    return EventPage(found, row.final and last >= row.seq)


def _log(connection: apsw.Connection, sql: str, parameters: tuple[int, ...]) -> list[LogRow]:
    return [log_row(line) for line in every(connection, sql, parameters)]


def attempts(connection: apsw.Connection, job_id: UUID) -> list[Attempt] | None:
    row = load(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    return attempts_of(row, _log(connection, SQL.past_attempts, (row.serial, 0, _NEWEST)))


def checkpoints(connection: apsw.Connection, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
    return [
        {
            step: Checkpoint(step, value, attempt, at)
            for step, value, attempt, at in every(connection, SQL.get_steps, (job_id.bytes,))
        }
        for job_id in ids
    ]


# -- small data


def _record(connection: apsw.Connection, kind: str, key: str, now: Instant) -> Entry | None:
    found = first(connection, SQL.get_record, (kind, key))
    return records.alive(rows.entry(found), now) if found is not None else None


def put_records(tx: Tx, puts: Sequence[Put]) -> list[PutAnswer]:
    now, answers = tx.now(), []
    for put in puts:
        answer = records.put(put, _record(tx.connection, put.kind, put.key, now), now)
        entry = answer.entry
        if answer.applied and entry is not None:
            tx.connection.execute(
                SQL.put_record,
                (entry.kind, entry.key, entry.value, entry.version, entry.expires_at),
            )
            if put.kind == LIMIT:
                gates.look_again(tx, put.key)
        answers.append(answer)
    return answers


def get_records(
    connection: apsw.Connection, kind: str, keys: Sequence[str], now: Instant
) -> list[Entry | None]:
    return [_record(connection, kind, key, now) for key in keys]


def list_records(
    connection: apsw.Connection, kind: str, after: str, limit: int, now: Instant
) -> list[Entry]:
    found = every(connection, SQL.list_records, (kind, after, now, limit))
    return [rows.entry(row) for row in found]


def delete_records(tx: Tx, kind: str, keys: Sequence[str]) -> None:
    for key in keys:
        tx.connection.execute(SQL.delete_record, (kind, key))
        if kind == LIMIT:
            gates.look_again(tx, key)
