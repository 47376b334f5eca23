"""Gates of the memory store: waiting jobs, permits, and queue positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windlass.core.admission import gates
from windlass.core.admission import queue_position as positions
from windlass.core.admission.gates import GateStats
from windlass.core.admission.limit import LIMIT, Limit, decode_limit
from windlass.core.admission.permits import Capacity, capacity, in_use, next_permit, with_start
from windlass.core.admission.queue_position import queue_order
from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.versioned_record import unexpired
from windlass.store import COUNT_CAP
from windlass.stores.memory.data import MemoryData


def gates_of(data: MemoryData, new: NewJob, now: Instant) -> tuple[str, ...]:
    limited = {
        key
        for (kind, key), entry in data.entries.items()
        if kind == LIMIT and unexpired(entry, now)
    }
    return gates.gates_of(new.queue, new.task, new.limit_key, limited)


def queue_position(data: MemoryData, row: JobRow, arrival: int) -> int:
    """Return the position of a job in its queue, or at the gate where it waits."""
    if row.limit_key is None:
        return arrival
    neighbors = [
        other
        for other in data.jobs.values()
        if other.priority == row.priority and other.id != row.id and _same_order(other, row)
    ]
    own = [other for other in neighbors if other.limit_key == row.limit_key]
    return positions.fair_position(row.limit_key, arrival, _first(neighbors), _last(own))


def _same_order(other: JobRow, row: JobRow) -> bool:
    """Return whether the other job waits in the queue or at the gate of this job."""
    if row.gate is not None:
        return other.gate == row.gate
    return other.state is State.QUEUED and other.queue == row.queue


def _first(rows: Sequence[JobRow]) -> int | None:
    return min((row.position or 0 for row in rows), default=None)


def _last(rows: Sequence[JobRow]) -> int | None:
    return max((row.position or 0 for row in rows), default=None)


def open_gate(data: MemoryData, gate: str, now: Instant) -> Iterator[JobRow]:
    """Yield the jobs to admit now, in order. The caller must admit each before the next one."""
    permits = data.permits[gate]
    for (job_id, serial, fence), permit in list(permits.items()):
        permits[job_id, serial, fence] = with_start(permit, data.job(job_id, serial))
    capacity = _capacity(data, gate, now)
    for key, counts in zip(list(permits), capacity.kept, strict=True):
        if not counts:
            del permits[key]
    admissible = [row for row in waiting_at(data, gate) if not maintenance.expired(row, now)]
    for row in admissible[: min(capacity.free, gates.BATCH)]:
        permit = next_permit(row, now)
        permits[row.id, row.serial, permit.fence] = permit
        yield row
    remaining = waiting_at(data, gate)
    data.next_checks[gate] = None
    if remaining and capacity.free > gates.BATCH:
        data.next_checks[gate] = now
    elif remaining:
        data.next_checks[gate] = _capacity(data, gate, now).next_check_at


def _capacity(data: MemoryData, gate: str, now: Instant) -> Capacity:
    permits = [
        (permit, in_use(permit, data.job(job_id, serial)))
        for (job_id, serial, _), permit in data.permits[gate].items()
    ]
    return capacity(_limit(data, gate, now), permits, now)


def _limit(data: MemoryData, gate: str, now: Instant) -> Limit | None:
    entry = unexpired(data.entries.get((LIMIT, gates.limit_name(gate))), now)
    return None if entry is None else decode_limit(entry.value)


def waiting_at(data: MemoryData, gate: str) -> list[JobRow]:
    rows = [row for row in data.jobs.values() if row.gate == gate]
    return sorted(rows, key=queue_order)


def schedule_check(data: MemoryData, limit: str) -> None:
    """Make the gates of a changed limit due, so that the next sweep admits jobs."""
    for row in data.jobs.values():
        if row.gate is not None and gates.limit_name(row.gate) == limit:
            data.next_checks[row.gate] = 0


def due(data: MemoryData, now: Instant) -> list[JobRow]:
    """Return the first waiting job of each gate whose check is due."""
    due_gates = [gate for gate, at in data.next_checks.items() if at is not None and at <= now]
    return [rows[0] for gate in sorted(due_gates) if (rows := waiting_at(data, gate))]


def stats(data: MemoryData, gate: str) -> GateStats:
    """Return the state of a gate. Does not delete permits that no longer count."""
    held = sorted(
        (permit.at, job_id)
        for (job_id, serial, _), permit in data.permits.get(gate, {}).items()
        if in_use(permit, data.job(job_id, serial))
    )
    return GateStats(
        waiting=min(len(waiting_at(data, gate)), COUNT_CAP),
        in_use=len(held),
        holders=tuple(job_id for _, job_id in held[: gates.MAX_HOLDERS]),
        next_check_at=data.next_checks.get(gate),
    )
