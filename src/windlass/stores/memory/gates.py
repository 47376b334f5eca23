"""Who waits at which gate, who may pass, and where in line that leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.core import records
from windlass.core.admission import gates
from windlass.core.admission.gates import LIMIT, GateStats, Limit
from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.store import COUNT_CAP
from windlass.stores.memory.data import Data


def gates_of(data: Data, new: NewJob, now: Instant) -> tuple[str, ...]:
    limited = {
        key
        for (kind, key), entry in data.entries.items()
        if kind == LIMIT and records.alive(entry, now)
    }
    return gates.gates_of(new.queue, new.task, new.limit_key, limited)


def place(data: Data, row: JobRow, arrival: int) -> int:
    """Where a job comes to stand: in the line of its queue, or before the gate that it names."""
    if row.limit_key is None:
        return arrival
    beside = [
        other
        for other in data.jobs.values()
        if other.priority == row.priority and other.id != row.id and _same_line(other, row)
    ]
    own = [other for other in beside if other.limit_key == row.limit_key]
    return gates.place(row.limit_key, arrival, _first(beside), _last(own))


def _same_line(one: JobRow, other: JobRow) -> bool:
    if other.gate is not None:
        return one.gate == other.gate
    return one.state is State.QUEUED and one.queue == other.queue


def _first(rows: Sequence[JobRow]) -> int | None:
    return min((row.position or 0 for row in rows), default=None)


def _last(rows: Sequence[JobRow]) -> int | None:
    return max((row.position or 0 for row in rows), default=None)


def open_gate(data: Data, gate: str, now: Instant) -> Iterator[JobRow]:
    """The jobs that may pass it now, in order; each has to have passed before the next."""
    passes = data.passes[gate]
    for (job_id, serial, fence), it in list(passes.items()):
        passes[job_id, serial, fence] = gates.refreshed(it, data.job(job_id, serial))
    room = _room(data, gate, now)
    for key, counts in zip(list(passes), room.kept, strict=True):
        if not counts:
            del passes[key]
    able = [row for row in waiting_at(data, gate) if not maintenance.too_late(row, now)]
    for row in able[: min(room.free, gates.BATCH)]:
        it = gates.next_pass(row, now)
        passes[row.id, row.serial, it.fence] = it
        yield row
    rest = waiting_at(data, gate)
    data.looks[gate] = None
    if rest and room.free > gates.BATCH:
        data.looks[gate] = now
    elif rest:
        data.looks[gate] = _room(data, gate, now).look_at


def _room(data: Data, gate: str, now: Instant) -> gates.Room:
    passes = [
        (it, gates.holds(it, data.job(job_id, serial)))
        for (job_id, serial, _), it in data.passes[gate].items()
    ]
    return gates.room(_limit(data, gate, now), passes, now)


def _limit(data: Data, gate: str, now: Instant) -> Limit | None:
    entry = records.alive(data.entries.get((LIMIT, gates.limit_name(gate))), now)
    return None if entry is None else gates.limit_of(entry.value)


def waiting_at(data: Data, gate: str) -> list[JobRow]:
    found = [row for row in data.jobs.values() if row.gate == gate]
    return sorted(found, key=gates.line_order)


def look_again(data: Data, limit: str) -> None:
    """A limit was changed: the next sweep sees whom that lets in."""
    for row in data.jobs.values():
        if row.gate is not None and gates.limit_name(row.gate) == limit:
            data.looks[row.gate] = 0


def due(data: Data, now: Instant) -> list[JobRow]:
    """The first at each gate that is to be looked at by now."""
    wanted = [gate for gate, at in data.looks.items() if at is not None and at <= now]
    return [rows[0] for gate in sorted(wanted) if (rows := waiting_at(data, gate))]


def stats(data: Data, gate: str) -> GateStats:
    """A read: passes that count no more are left where they are."""
    held = sorted(
        (it.at, job_id)
        for (job_id, serial, _), it in data.passes.get(gate, {}).items()
        if gates.holds(it, data.job(job_id, serial))
    )
    return GateStats(
        waiting=min(len(waiting_at(data, gate)), COUNT_CAP),
        holding=len(held),
        holders=tuple(job_id for _, job_id in held[: gates.HOLDERS]),
        look_at=data.looks.get(gate),
    )
