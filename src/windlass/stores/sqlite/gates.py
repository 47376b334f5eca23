"""Who waits at which gate, who may pass, and where in line that leads.

Each pass says whether it holds a slot and when its attempt started, as far as a limit asks: written
with the change of its job, in one transaction. So gates are counted without a look at their jobs,
and many of them, with all who pass, in a few statements.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import NamedTuple
from uuid import UUID

import apsw

from windlass.core import gate as gates
from windlass.core.clock import Instant
from windlass.core.gate import BATCH, GateStats, Limit, in_order, rank
from windlass.store import COUNT_CAP
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import GATES, Row, gate_names
from windlass.stores.sqlite.transaction import Tx
from windlass.stores.sqlite.turns import Line, Turns

_FIRST, _BEYOND = "\x1f", "\x20"  # all gates of keys lie between their limit's name with these


class _Opened(NamedTuple):
    """A gate that was opened, with the room that it had."""

    gate: str
    limit: Limit | None
    free: int
    started: int  # that count, with those who pass now


def open_gates(tx: Tx, now: Instant) -> set[int]:
    """Let in whom the writes of a call made room for, before it returns: their numbers."""
    _leave(tx, now)
    passed: set[int] = set()
    while tx.knocks:
        names = _next_of(tx.knocks)
        tx.knocks.difference_update(names)
        passed.update(_open(tx, names, now))
    return passed


def _next_of(knocks: set[str]) -> list[str]:
    """Those to be looked at next, in order: whoever passes one comes to none of the others."""
    ordered = in_order(knocks)
    lowest = rank(ordered[0])
    return list(takewhile(lambda gate: rank(gate) == lowest, ordered))


def _leave(tx: Tx, now: Instant) -> None:
    """Take their passes from those who left; of one whose start counts, note that it did."""
    if not tx.gone:
        return
    rated = [gate for gate in tx.knocks if _rated(tx.limit(gates.limit_name(gate), now))]
    if rated:
        _judge(tx.connection, tx.gone)
    gone = apsw.carray(array("q", tx.gone))
    tx.connection.execute(SQL.leave, (gone, json.dumps(rated)))
    tx.gone = []


def _rated(limit: Limit | None) -> bool:
    return limit is not None and limit.starts is not None


def _judge(connection: apsw.Connection, numbers: list[int]) -> None:
    """Write down what the passes of these jobs are worth now, by the rows of the jobs."""
    if numbers:
        connection.execute(SQL.judge, (apsw.carray(array("q", numbers)),))


def _open(tx: Tx, names: list[str], now: Instant) -> list[int]:
    connection = tx.connection
    connection.execute(SQL.look_no_more, (apsw.carray(tuple(names)),))
    opened: list[_Opened] = []
    passing: list[Row] = []
    for name, of_limit in groupby(_waited_at(connection, names), gates.limit_name):
        for gate, able in _pass(connection, list(of_limit), tx.limit(name, now), now):
            opened.append(gate)
            passing += able
    _let_in(tx, passing, now)
    _look_later(connection, opened, now)
    return [row[0] for row in passing]


def _waited_at(connection: apsw.Connection, names: list[str]) -> list[str]:
    found = every(connection, SQL.waited_at, (apsw.carray(tuple(names)),)) if names else []
    return [gate for (gate,) in found]


def _pass(
    connection: apsw.Connection, names: list[str], limit: Limit | None, now: Instant
) -> list[tuple[_Opened, list[Row]]]:
    """Who passes these gates of one limit, in order: they have their passes."""
    length = limit.length if limit is not None and limit.starts is not None else None
    asked = {"gates": apsw.carray(tuple(names)), "now": now, "length": length}
    counts = {gate: n for gate, *n in every(connection, SQL.count_passes, asked)}
    if any(over for _, _, over in counts.values()) or limit is None:
        connection.execute(SQL.drop_passes, asked | {"limited": limit is not None})
    found: list[tuple[_Opened, list[Row]]] = []
    for gate in names:
        holding, started, _ = counts.get(gate, (0, 0, 0))
        free = gates.free(limit, holding, started)
        most = min(free, BATCH)
        able = every(connection, SQL.able, (gate, now, most)) if most else []
        found.append((_Opened(gate, limit, free, started + len(able)), able))
    numbers = [row[0] for _, able in found for row in able]
    if numbers and limit is not None:
        connection.execute(SQL.grant_passes, (now, apsw.carray(array("q", numbers))))
    return found


def _let_in(tx: Tx, passing: list[Row], now: Instant) -> None:
    """On to the next gate, or into the line."""
    turns = Turns(tx.connection)
    places: dict[str | None, dict[int, int]] = {}
    for n, job_id, queue, priority, key, names, gate, position in passing:
        after = gates.after(gate_names(names), gate)
        # From one gate to the next it stays as old as it was.
        arrival = tx.position() if after is None else position
        place = turns.place(Line(queue, after, priority), key, arrival)
        places.setdefault(after, {})[n] = place
        tx.touch(UUID(bytes=job_id))
    for after, given in places.items():
        if after is None:
            tx.connection.execute(SQL.enter_line, (now, json.dumps(given)))
            tx.work = True
        else:
            tx.connection.execute(SQL.go_on, (after, json.dumps(given)))
            tx.knocks.add(after)


def _look_later(connection: apsw.Connection, opened: list[_Opened], now: Instant) -> None:
    """Note when time alone lets somebody pass; where only an end does, nothing is to be noted."""
    timed = {it.gate: it for it in opened if it.free > BATCH or _rate_is_full(it)}
    for gate in _waited_at(connection, list(timed)):
        _, limit, free, started = timed[gate]
        at = now
        if free <= BATCH and limit is not None and limit.starts is not None:
            asked = {"gate": gate, "now": now, "length": limit.length}
            at = single(connection, SQL.next_start, asked | {"more": started - limit.starts})
        connection.execute(SQL.look_at_gate, (gate, at))


def _rate_is_full(it: _Opened) -> bool:
    limit = it.limit
    return limit is not None and limit.starts is not None and it.started >= limit.starts


def note_starts(tx: Tx, claimed: Sequence[Row], now: Instant) -> None:
    """A rate counts from the start of an attempt; no other limit asks for it."""
    rated: dict[str, bool] = {}
    numbers = []
    for row in claimed:
        names = row[GATES]
        if names is None:
            continue
        if names not in rated:
            limits = (tx.limit(gates.limit_name(gate), now) for gate in gate_names(names))
            rated[names] = any(map(_rated, limits))
        if rated[names]:
            numbers.append(row[0])
    _judge(tx.connection, numbers)


def look_again(tx: Tx, limit: str) -> None:
    """A limit was changed: the next sweep sees whom that lets in."""
    tx.limits_changed()
    connection = tx.connection
    keys = (limit + _FIRST, limit + _BEYOND)
    # A rate asks for more of a pass than a concurrency did.
    _judge(connection, [n for (n,) in every(connection, SQL.passed_by, (limit, *keys))])
    for gate in _waited_at(connection, [limit]):
        connection.execute(SQL.look_at_gate, (gate, 0))
    found = first(connection, SQL.next_gate, keys)
    while found is not None:
        connection.execute(SQL.look_at_gate, (found[0], 0))
        found = first(connection, SQL.next_gate, (found[0], keys[1]))


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[Row]:
    """The first at each gate that is to be looked at by now."""
    return every(connection, SQL.heads, (now, limit))


def stats(connection: apsw.Connection, names: Sequence[str]) -> list[GateStats]:
    return [_stats(connection, gate) for gate in names]


def _stats(connection: apsw.Connection, gate: str) -> GateStats:
    held = every(connection, SQL.holders, (gate,))
    return GateStats(
        waiting=single(connection, SQL.waiting_at_gate, (gate, COUNT_CAP)),
        holding=len(held),
        holders=tuple(UUID(bytes=job_id) for (job_id,) in held[: gates.HOLDERS]),
        look_at=single(connection, SQL.look_of_gate, (gate,)),
    )
