"""Who waits at which gate, who may pass, and where in line that leads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

import apsw

from windlass.core import gate as gates
from windlass.core import records
from windlass.core.clock import Instant
from windlass.core.gate import BATCH, LIMIT, GateStats, Limit, Pass, in_order, rank
from windlass.core.job import Standing
from windlass.core.records import Entry
from windlass.core.state import State
from windlass.store import COUNT_CAP
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.transaction import Tx

_NOBODY = UUID(int=0)
_FIRST, _BEYOND = "\x1f", "\x20"  # all gates of keys lie between their limit's name with these


class Line(NamedTuple):
    """The jobs of one priority in a queue, or before a gate."""

    queue: str
    gate: str | None
    priority: int


def place(connection: apsw.Connection, line: Line, key: str | None, arrival: int) -> int:
    """Where a job comes to stand; all that was decided before has to be written."""
    if key is None:
        return arrival
    if line.gate is None:
        beside = first(connection, SQL.beside_in_line, (line.queue, line.priority, key))
    else:
        beside = first(connection, SQL.beside_at_gate, (line.gate, line.priority, key))
    assert beside is not None
    return gates.place(key, arrival, *beside)


def next_of(knocks: set[str]) -> list[str]:
    """Those to be looked at next, in order: whoever passes one comes to none of the others."""
    ordered = in_order(knocks)
    lowest = rank(ordered[0])
    return list(takewhile(lambda gate: rank(gate) == lowest, ordered))


def open_gate(connection: apsw.Connection, gate: str, now: Instant) -> list[UUID]:
    """The jobs that pass it now, in order: they have their passes, and are to be let in."""
    limit = _limit(connection, gate, now)
    counted = _counted(connection, gate)
    room = gates.room(limit, [(it, holding) for _, it, holding in counted], now)
    kept = []
    for (n, it, holding), counts in zip(counted, room.kept, strict=True):
        if counts:
            kept.append((it, holding))
        else:
            connection.execute(SQL.delete_pass, (gate, n, it.fence))
    most = min(room.free, BATCH)
    able = every(connection, SQL.able, (gate, now, most)) if most else []
    if limit is not None:
        new = [Pass(fence + 1, now) for _, _, fence in able]
        _put(connection, gate, [(n, it) for (n, _, _), it in zip(able, new, strict=True)])
        kept += [(it, True) for it in new]
    look_at = None
    if first(connection, SQL.more_at_gate, (gate, len(able))):
        look_at = now if room.free > BATCH else gates.room(limit, kept, now).look_at
    _look(connection, gate, look_at)
    return [UUID(bytes=job_id) for _, job_id, _ in able]


def _counted(connection: apsw.Connection, gate: str) -> list[tuple[int, Pass, bool]]:
    """All passes of a gate, refreshed, by the numbers of their jobs, and which hold a slot."""
    counted, news = [], []
    for n, fence, at, started_at, *job in every(connection, SQL.passes, (gate,)):
        row = _job(job)
        was = Pass(fence, at, started_at)
        it = gates.refreshed(was, row)
        if it is not was:
            news.append((n, it))
        counted.append((n, it, gates.holds(it, row)))
    _put(connection, gate, news)
    return counted


def _job(found: list[Any]) -> Standing | None:
    """As much of a job as its pass is worth."""
    state, fence, started_at, gate = found
    if state is None:
        return None
    return Standing(
        id=_NOBODY,
        queue="",
        task="",
        created_at=0,
        state=State(state),
        fence=fence,
        started_at=started_at,
        gate=gate,
    )


def _put(connection: apsw.Connection, gate: str, passes: list[tuple[int, Pass]]) -> None:
    if passes:
        values = [(gate, n, it.fence, it.at, it.started_at) for n, it in passes]
        connection.executemany(SQL.put_pass, values)


def _limit(connection: apsw.Connection, gate: str, now: Instant) -> Limit | None:
    found = first(connection, SQL.get_record, (LIMIT, gates.limit_name(gate)))
    if found is None:
        return None
    kind, key, value, version, expires_at = found
    entry = Entry(kind=kind, key=key, value=value, version=version, expires_at=expires_at)
    return gates.limit_of(entry.value) if records.alive(entry, now) else None


def _look(connection: apsw.Connection, gate: str, at: Instant | None) -> None:
    if at is None:
        connection.execute(SQL.look_no_more, (gate,))
    else:
        connection.execute(SQL.look_at_gate, (gate, at))


def look_again(tx: Tx, limit: str) -> None:
    """A limit was changed: the next sweep sees whom that lets in."""
    tx.limits_changed()
    connection = tx.connection
    if first(connection, SQL.more_at_gate, (limit, 0)):
        _look(connection, limit, 0)
    found = first(connection, SQL.next_gate, (limit + _FIRST, limit + _BEYOND))
    while found is not None:
        _look(connection, found[0], 0)
        found = first(connection, SQL.next_gate, (found[0], limit + _BEYOND))


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[Row]:
    """The first at each gate that is to be looked at by now."""
    return every(connection, SQL.heads, (now, limit))


def stats(connection: apsw.Connection, names: Sequence[str]) -> list[GateStats]:
    return [_stats(connection, gate) for gate in names]


def _stats(connection: apsw.Connection, gate: str) -> GateStats:
    held = [
        UUID(bytes=job_id)
        for job_id, fence, *job in every(connection, SQL.holders, (gate,))
        if gates.holds(Pass(fence, 0), _job(job))
    ]
    return GateStats(
        waiting=single(connection, SQL.waiting_at_gate, (gate, COUNT_CAP)),
        holding=len(held),
        holders=tuple(held[: gates.HOLDERS]),
        look_at=single(connection, SQL.look_of_gate, (gate,)),
    )
