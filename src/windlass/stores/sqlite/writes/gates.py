"""Who waits at which gate, who may pass, and where in line that leads.

Each pass says whether it holds a slot and when its attempt started, as far as a limit asks: written
with the change of its job, in one transaction (`passes`). So many gates, with all who pass, are
opened in a few statements, however many passed before.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import apsw

from windlass.core.admission import gates
from windlass.core.admission.gates import BATCH, GateStats, Limit, rank
from windlass.core.clock import Instant
from windlass.store import COUNT_CAP
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import (
    FENCE,
    GATES,
    STARTED_AT,
    Row,
    gate_after,
    gate_names,
    limit_names,
)
from windlass.stores.sqlite.writes.permits import Passes
from windlass.stores.sqlite.writes.positions import Line, Turns, line_of
from windlass.stores.sqlite.writes.transaction import Tx

_alike = itemgetter(GATES, STARTED_AT, FENCE)
_KEY, _GATE = 3, 5  # where they are in a row of `able`
_FIRST, _BEYOND = "\x1f", "\x20"  # all gates of keys lie between their limit's name with these


class _Timed(NamedTuple):
    """A gate that was opened, with the room that it had."""

    limit: Limit | None
    free: int
    started: int  # that count, with those who pass now

    @property
    def full(self) -> bool:
        """Whether no more may start for now."""
        limit = self.limit
        return limit is not None and limit.starts is not None and self.started >= limit.starts


def open_gates(tx: Tx, now: Instant) -> set[int]:
    """Let in whom the writes of a call made room for, before it returns: their numbers."""
    if not (tx.knocks or tx.gone or tx.ended):
        return set()
    passes = Passes(tx.connection)
    _leave(tx, passes, now)
    passed: set[int] = set()
    while tx.knocks:
        names = _next_of(tx.knocks)
        tx.knocks.difference_update(names)
        passed.update(_open(tx, passes, names, now))
    passes.write()
    return passed


def _next_of(knocks: set[str]) -> list[str]:
    """Those to be looked at next, in order: whoever passes one comes to none of the others."""
    lowest = min(map(rank, knocks))
    return sorted(gate for gate in knocks if rank(gate) == lowest)


def _leave(tx: Tx, passes: Passes, now: Instant) -> None:
    """Take their passes from those who left; of one whose start counts, note that it did."""
    if not (tx.gone or tx.ended):
        return
    limits = tx.rates(now)
    rated = {gate for gate in tx.knocks if gates.limit_name(gate) in limits} if limits else set()
    if tx.ended:
        at: dict[str, int] = {}
        for names, many in tx.ended_with.items():
            for gate in gate_names(names):
                at[gate] = at.get(gate, 0) + many
        passes.end(tx.ended, at, rated & at.keys())
        tx.ended, tx.ended_with = [], Counter()
    if tx.gone:
        passes.leave(tx.gone, rated)
        tx.gone = []


def _open(tx: Tx, passes: Passes, names: list[str], now: Instant) -> list[int]:
    connection = tx.connection
    connection.execute(SQL.look_no_more, (apsw.carray(tuple(names)),))
    passing: list[Row] = []
    timed: dict[str, _Timed] = {}
    for name, of_limit in groupby(names, gates.limit_name):
        limit = tx.limit(name, now)
        since = None if limit is None or limit.starts is None else now - limit.length
        counts = passes.count(list(of_limit), since)
        rooms = {gate: gates.free(limit, held, started) for gate, held, started in counts}
        able = _able(connection, rooms, now)
        came = Counter([row[_GATE] for row in able])
        if able:
            passes.grant(array("q", [row[0] for row in able]), came, now)
            passing += able
        if since is not None or max(rooms.values(), default=0) > BATCH:
            for gate, _, started in counts:
                timed[gate] = _Timed(limit, rooms[gate], started + came[gate])
    _let_in(tx, passing, now)
    _look_later(connection, timed, now)
    return [row[0] for row in passing]


def _able(connection: apsw.Connection, rooms: dict[str, int], now: Instant) -> list[Row]:
    """The first at each gate, as many as may pass, in order: together where that is as many."""
    alike: dict[int, list[str]] = {}
    for gate, free in rooms.items():
        if free:
            alike.setdefault(min(free, BATCH), []).append(gate)
    found: list[Row] = []
    for most, names in alike.items():
        asked = (apsw.carray(tuple(names)), now, most)
        found += json.loads(single(connection, SQL.able, asked))
    if len(alike) > 1:
        found.sort(key=itemgetter(_GATE))
    return found


def _let_in(tx: Tx, passing: list[Row], now: Instant) -> None:
    """On to the next gate, or into the line."""
    if not passing:
        return
    lines: dict[Line, list[Row]] = {}
    comers: list[Row] = []
    way: tuple[str, int, str, str] | None = None
    for row in passing:  # of one gate after the other: mostly, those of one kind go the same way
        _, queue, priority, _, names, gate, _ = row
        if (queue, priority, names, gate) != way:
            way = (queue, priority, names, gate)
            comers = lines.setdefault(line_of(queue, gate_after(names, gate), priority), [])
        comers.append(row)
    turns = Turns(tx.connection)
    places: dict[str | None, dict[int, int]] = {}
    for line, comers in lines.items():
        # From one gate to the next it stays as old as it was.
        arrivals = tx.positions(len(comers)) if line.gate is None else [row[-1] for row in comers]
        given = turns.places(line, [row[_KEY] for row in comers], arrivals)
        places.setdefault(line.gate, {}).update(zip([row[0] for row in comers], given, strict=True))
    if tx.touched is not None:
        numbers = array("q", [row[0] for row in passing])
        tx.touched += [
            UUID(bytes=job_id)
            for (job_id,) in every(tx.connection, SQL.ids_of, (apsw.carray(numbers),))
        ]
    for after, taken in places.items():
        if after is None:
            tx.connection.execute(SQL.enter_line, (now, json.dumps(taken)))
            tx.work = True
        else:
            tx.connection.execute(SQL.go_on, (after, json.dumps(taken)))
            tx.knocks.add(after)


def _waited_at(connection: apsw.Connection, names: list[str]) -> list[str]:
    found = every(connection, SQL.waited_at, (apsw.carray(tuple(names)),)) if names else []
    return [gate for (gate,) in found]


def _look_later(connection: apsw.Connection, opened: dict[str, _Timed], now: Instant) -> None:
    """Note when time alone lets somebody pass; where only an end does, nothing is to be noted."""
    timed = [gate for gate, it in opened.items() if it.free > BATCH or it.full]
    for gate in _waited_at(connection, timed):
        limit, free, started = opened[gate]
        at = now
        if free <= BATCH and limit is not None and limit.starts is not None:
            asked = (gate, now, limit.starts, now - limit.length, started - limit.starts)
            at = single(connection, SQL.next_start, asked) + limit.length
        connection.execute(SQL.look_at_gate, (gate, at))


def note_starts(tx: Tx, claimed: Sequence[Row], now: Instant) -> None:
    """A rate counts from the start of an attempt; no other limit asks for it."""
    gated = [row for row in claimed if row[GATES] is not None]
    rates = tx.rates(now) if gated else None
    if not rates:
        return
    alike: dict[tuple[str, Instant, int], list[int]] = {}  # mostly, all of a claim are
    for row in gated:
        alike.setdefault(_alike(row), []).append(row[0])
    for (names, at, fence), numbers in alike.items():
        if not rates.isdisjoint(limit_names(names)):
            asked = (apsw.carray(array("q", numbers)), at, fence)
            tx.connection.execute(SQL.note_starts, asked)


def look_again(tx: Tx, limit: str) -> None:
    """A limit was changed: the next sweep sees whom that lets in."""
    tx.limits_changed()
    connection = tx.connection
    keys = (limit + _FIRST, limit + _BEYOND)
    # A rate asks for more of a pass than a concurrency did.
    Passes(connection).judge((limit, *keys))
    for gate in _waited_at(connection, [limit]):
        connection.execute(SQL.look_at_gate, (gate, 0))
    found = first(connection, SQL.next_gate, keys)
    while found is not None:
        connection.execute(SQL.look_at_gate, (found[0], 0))
        found = first(connection, SQL.next_gate, (found[0], keys[1]))


def tidy(connection: apsw.Connection, now: Instant, limit: int) -> None:
    """Drop starts that count no more; have gates opened whose counts kept them shut wrongly."""
    passes = Passes(connection)
    passes.drop_idle(now, limit)
    passes.write()
    for gate in _waited_at(connection, passes.mend()):
        connection.execute(SQL.look_at_gate, (gate, 0))


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[Row]:
    """The first at each gate that is to be looked at by now."""
    return every(connection, SQL.heads, (now, limit))


def stats(connection: apsw.Connection, names: Sequence[str]) -> list[GateStats]:
    some = apsw.carray(tuple(names)) if names else None
    known = {gate: counts for gate, *counts in every(connection, SQL.gates, (some,))}
    holders: dict[str, list[UUID]] = {}
    for gate, job_id in every(connection, SQL.holders, (some, gates.HOLDERS)) if known else ():
        holders.setdefault(gate, []).append(UUID(bytes=job_id))
    found = []
    for gate in names:
        held, look_at = known.get(gate, (0, None))
        waiting = single(connection, SQL.waiting_at_gate, (gate, COUNT_CAP))
        found.append(
            GateStats(
                waiting=waiting,
                holding=held,
                holders=tuple(holders.get(gate, ())),
                look_at=look_at,
            )
        )
    return found
