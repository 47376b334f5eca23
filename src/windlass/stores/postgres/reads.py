"""The reads, as functions of a connection, and the small data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from uuid import UUID

from windlass.core import event, records
from windlass.core.admission.gates import HOLDERS, LIMIT, GateStats, Setting, in_order, rank
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Checkpoint
from windlass.core.errors import StoreDeniedError
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.core.job.failure import Failures
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query import job_query
from windlass.core.query.job_query import Count, Page, Query
from windlass.core.records import PAUSED, Entry, Put, PutAnswer
from windlass.store import COUNT_CAP, COUNT_RANGE, FLOW_RANGE, EventPage, QueueStats, Rollup
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.enqueue_jobs import number_of
from windlass.stores.sql.failures import failures_of
from windlass.stores.sql.log import log_row

STRETCH = 5_000  # jobs that one page of a filtered search looks at
_TROUBLE = frozenset({State.FAILED, State.CANCELED})
_NEWEST = 2**63 - 1
_BEYOND = UUID(int=2**128 - 1)  # after every id: this one is nobody's


async def get(
    connection: Connection, ids: Sequence[UUID], owner: str | None
) -> list[JobRow | None]:
    found = [rows.job_row(record) for record in await connection.fetch(SQL.get_jobs, list(ids))]
    known = {row.id: row for row in found if owner in {None, row.owner}}
    return [known.get(job_id) for job_id in ids]


async def find(connection: Connection, wanted: Query) -> Page:
    stretch = await _stretch(connection, wanted, job_query.decode_cursor(wanted) or _NEWEST)
    matches = await _matching(connection, wanted, stretch, wanted.limit + 1)
    numbers = matches[: wanted.limit]
    sql = SQL.numbered_bare if wanted.bare else SQL.numbered
    found = await connection.fetch(sql, numbers) if numbers else []
    page = sorted(map(rows.job_row, found), key=attrgetter("serial"), reverse=True)
    if len(matches) > wanted.limit:
        last: int | None = numbers[-1]
    else:
        last = stretch[-1] if len(stretch) == STRETCH else None
    return Page(page, job_query.encode_cursor(wanted, last) if last is not None else None)


async def count(connection: Connection, wanted: Query) -> Count:
    number, before = 0, _NEWEST
    for _ in range(COUNT_RANGE // STRETCH):
        stretch = await _stretch(connection, wanted, before)
        number += len(await _matching(connection, wanted, stretch, COUNT_CAP + 1 - number))
        if number > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(stretch) < STRETCH:
            return Count(number, capped=False)
        before = stretch[-1]
    return Count(number, capped=True)


async def _stretch(connection: Connection, wanted: Query, before: int) -> list[int]:
    """The jobs to look at next: the newest of those among which all that match must be."""
    trouble = bool(wanted.states) and wanted.states <= _TROUBLE
    if wanted.root_id is not None:
        among = await connection.fetch(SQL.stretch_of_lineage, before, STRETCH, wanted.root_id)
    elif wanted.flow_id is not None:
        among = await connection.fetch(SQL.stretch_of_flow, before, STRETCH, wanted.flow_id)
    else:
        sql = SQL.stretch_of_trouble if trouble else SQL.stretch
        among = await connection.fetch(sql, before, STRETCH)
    return [n for (n,) in among]


async def _matching(
    connection: Connection, wanted: Query, stretch: list[int], limit: int
) -> list[int]:
    found = await connection.fetch(SQL.matching, stretch, *_filters(wanted), limit)
    return [n for (n,) in found]


def _filters(wanted: Query) -> Row:
    def among(values: Iterable[str]) -> list[str] | None:
        return sorted(values) or None

    return (
        among(wanted.states), among(wanted.queues), among(wanted.tasks), among(wanted.tags),
        wanted.owner, wanted.team, wanted.worker, wanted.error, wanted.request_id,
        wanted.unique_key, wanted.retry_of, wanted.root_id, wanted.flow_id, wanted.created_from,
        wanted.created_to, None if wanted.text is None else job_query.folded(wanted.text),
    )  # fmt: skip


async def stats(connection: Connection, now: Instant | None) -> Mapping[str, QueueStats]:
    counts: dict[str, dict[State, int]] = defaultdict(dict)
    oldest: dict[str, Instant | None] = {}
    for queue, state, number, since in await connection.fetch(SQL.stats, COUNT_CAP):
        counts[queue][State(state)] = number
        if since is not None:
            oldest[queue] = since
    paused = {entry.key for entry in await list_records(connection, PAUSED, "", COUNT_CAP, now)}
    return {
        queue: QueueStats(
            counts={state: min(n, COUNT_CAP) for state, n in counts[queue].items()},
            capped=frozenset(state for state, n in counts[queue].items() if n > COUNT_CAP),
            oldest_queued_at=oldest.get(queue),
            paused=queue in paused,
        )
        for queue in sorted({*counts, *paused})
    }


async def failures(
    connection: Connection, since: Instant, limit: int, whose: tuple[str | None, str | None]
) -> Failures:
    return failures_of(await connection.fetch(SQL.failures, since, limit + 1), limit, whose)


async def rollups(connection: Connection, since: Instant, until: Instant) -> list[Rollup]:
    return [
        Rollup(minute=m, queue=q, task=t, outcome=State(o), count=count, wait=wait, run=run)
        for m, q, t, o, count, wait, run in await connection.fetch(SQL.rollups, since, until)
    ]


async def events(connection: Connection, job_id: UUID, after: int, limit: int) -> EventPage | None:
    after = max(after, 0)
    found = await connection.fetchrow(SQL.events, job_id, after, limit)
    if found is None:
        return None
    row = rows.job_row(found)
    *_, said, past = found
    log = [log_row(line) for line in (*said, *past)]
    events = event.page(row, log, after, limit)
    last = events[-1].seq if events else after
    return EventPage(events, row.final and last >= row.seq)


async def attempts(connection: Connection, job_id: UUID) -> list[Attempt] | None:
    found = await connection.fetchrow(SQL.attempts, job_id)
    if found is None:
        return None
    *_, past = found
    return attempts_of(rows.job_row(found), [log_row(line) for line in past])


async def checkpoints(
    connection: Connection, ids: Sequence[UUID]
) -> list[Mapping[str, Checkpoint]]:
    found: dict[UUID, dict[str, Checkpoint]] = {job_id: {} for job_id in ids}
    for job_id, step, value, attempt, at in await connection.fetch(SQL.get_steps, list(ids)):
        found[job_id][step] = Checkpoint(step, value, attempt, at)
    return [dict(found[job_id]) for job_id in ids]


async def edges(connection: Connection, ids: Sequence[UUID], most: int | None) -> list[Edges]:
    found = {
        job_id: Edges(tuple(parents), tuple(children))
        for job_id, parents, children in await connection.fetch(SQL.edges, list(ids), most)
    }
    return [found.get(job_id) or Edges() for job_id in ids]


async def flows(
    connection: Connection, ids: Sequence[UUID], whose: tuple[str | None, str | None]
) -> list[FlowStats | None]:
    sums: dict[UUID, list[Row]] = defaultdict(list)
    for flow_id, *states in await connection.fetch(SQL.flows, list(ids), *whose):
        sums[flow_id].append(tuple(states))
    return [FlowStats.of(id_, sums[id_]) if id_ in sums else None for id_ in ids]  # type: ignore[arg-type]


async def newest_flows(
    connection: Connection,
    before: UUID | None,
    limit: int,
    whose: tuple[str | None, str | None],
) -> FlowPage:
    page = [id_ for (id_,) in await connection.fetch(SQL.flows_before, before or _BEYOND, limit)]
    sums: dict[UUID, list[Row]] = defaultdict(list)
    capped: dict[UUID, bool] = {}
    found = await connection.fetch(SQL.newest_of_flows, page, FLOW_RANGE, *whose)
    for flow_id, more, *states in found:
        sums[flow_id].append(tuple(states))
        capped[flow_id] = more
    stats = [FlowStats.of(id_, sums[id_], capped=capped[id_]) for id_ in page if id_ in sums]  # type: ignore[arg-type]
    return FlowPage(stats, page[-1] if len(page) == limit else None)


# -- small data


def _entry(record: Row) -> Entry:
    kind, key, value, version, expires_at = tuple(record)[:5]
    return Entry(kind=kind, key=key, value=value, version=version, expires_at=expires_at)


def _locks(keys: Iterable[tuple[str, str]]) -> list[int]:
    """The numbers of their locks, in one order; a gate in the making shares that of its limit."""
    return sorted({number_of("record", *key) for key in keys})


async def put_records(
    connection: Connection, puts: Sequence[Put], given: Instant | None
) -> list[PutAnswer]:
    """In one transaction, and limits in the order in which everybody locks their gates."""
    answers: dict[int, PutAnswer] = {}
    for places in _turns([(put.kind, put.key) for put in puts]):
        some = await _put_records(connection, [puts[place] for place in places], given)
        answers |= zip(places, some, strict=True)
    return [answers[place] for place in range(len(puts))]


def _turns(names: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Places of records that are locked together.

    Whoever lets jobs in locks gates of keys, then of tasks, then of queues, and where a gate of the
    next kind is missing, also its limit's record. So nobody may have that who waits for a gate of
    an earlier kind.
    """
    turns: dict[int, list[int]] = {}
    for place, (kind, key) in enumerate(names):
        turns.setdefault(rank(key) if kind == LIMIT else -1, []).append(place)
    return [places for _, places in sorted(turns.items())]


async def _put_records(
    connection: Connection, puts: Sequence[Put], given: Instant | None
) -> list[PutAnswer]:
    """Under locks on the keys, for a record that is not there has no row."""
    keys = sorted({(put.kind, put.key) for put in puts})
    await connection.execute(SQL.lock_records, _locks(keys))
    now: Instant = await connection.fetchval(SQL.now, given)
    found = await connection.fetch(SQL.get_records, *rows.columns(keys))
    known = {(record[0], record[1]): _entry(record) for record in found}
    written: dict[tuple[str, str], Row] = {}
    answers = []
    for put in puts:
        answer = records.put(put, records.alive(known.get((put.kind, put.key)), now), now)
        entry = answer.entry
        if answer.applied and entry is not None:
            known[put.kind, put.key] = entry
            values = (entry.kind, entry.key, entry.value, entry.version, entry.expires_at)
            written[put.kind, put.key] = values
        answers.append(answer)
    limits = [row for row in written.values() if row[0] == LIMIT]
    if limits and not await connection.fetchval(SQL.may_put):
        await _declare(connection, limits)
    elif written:
        await connection.execute(SQL.put_records, *rows.columns(written.values()))
    if written:
        await _look_again(connection, (key for kind, key in written if kind == LIMIT))
    return answers


async def _declare(connection: Connection, limits: Sequence[Row]) -> None:
    """A role that may write no records stores the limits of its code that nobody has stored yet."""
    for _, name, value, version, _ in limits:
        if version > 1 or Setting.decode(value).given is not None:
            raise StoreDeniedError(
                f"this PostgreSQL role may declare limits that are not there yet, and change none: "
                f"leave {name} to a worker, or to a role that may (windlass_worker)"
            )
    names, values = [row[1] for row in limits], [row[2] for row in limits]
    await connection.execute(SQL.declare, names, values)


async def gates(connection: Connection, names: Sequence[str]) -> list[GateStats]:
    found = await connection.fetch(SQL.gates, list(names), COUNT_CAP, HOLDERS)
    return [
        GateStats(waiting=waiting, holding=holding, holders=tuple(some or ()), look_at=look_at)
        for waiting, holding, some, look_at in found
    ]


async def delete_records(connection: Connection, kind: str, keys: Sequence[str]) -> None:
    if kind != LIMIT:
        await connection.execute(SQL.delete_records, kind, list(keys))
        return
    for places in _turns([(kind, key) for key in keys]):
        some = [keys[place] for place in places]
        await connection.execute(SQL.lock_records, _locks((kind, key) for key in some))
        await connection.execute(SQL.delete_records, kind, some)
        await _look_again(connection, some)


async def _look_again(connection: Connection, limits: Iterable[str]) -> None:
    """At all gates of limits that were changed, in the order in which everybody locks gates."""
    for name in in_order(limits):
        await connection.execute(SQL.lock_gates, name)
        await connection.execute(SQL.look_again, name)


async def get_records(
    connection: Connection, kind: str, keys: Sequence[str], given: Instant | None
) -> list[Entry | None]:
    now: Instant = await connection.fetchval(SQL.now, given)
    found = await connection.fetch(SQL.get_records, [kind] * len(keys), list(keys))
    known = {record[1]: records.alive(_entry(record), now) for record in found}
    return [known.get(key) for key in keys]


async def list_records(
    connection: Connection, kind: str, after: str, limit: int, now: Instant | None
) -> list[Entry]:
    found = await connection.fetch(SQL.list_records, now, kind, after, limit)
    return [_entry(record) for record in found]
