"""Gates: the points where limited jobs wait until their limits have capacity.

A limit applies to a queue, to a task, or to each key of a task. A limited job waits at a *gate*,
outside the queue order, until the limit has capacity. It then gets a *permit* for its next
attempt. A job is checked at one gate after the other, the narrowest first: a job that cannot be
admitted at a narrow gate does not use a slot of a wide one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.admission.limit import GATE_ORDER, KEY, QUEUE, TASK
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Decision
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import State

BATCH = 1000  # jobs admitted at a gate in one write
MAX_HOLDERS = 3  # jobs listed in `GateStats.holders`
_RANK = {prefix[0]: rank for rank, prefix in enumerate(GATE_ORDER)}
_SEPARATOR = "\x1f"  # between the task and the key in the name of a gate


def gates_of(queue: str, task: str, key: str | None, limited: Container[str]) -> tuple[str, ...]:
    """Return the gates of a new job, in order; `limited` contains the names of all limits."""
    found = []
    if key is not None and KEY + task in limited:
        found.append(f"{KEY}{task}{_SEPARATOR}{key}")
    if TASK + task in limited:
        found.append(TASK + task)
    if QUEUE + queue in limited:
        found.append(QUEUE + queue)
    return tuple(found)


def next_gate(gates: Sequence[str], gate: str) -> str | None:
    """Return the gate after this one; None if it is the last."""
    return next(iter(gates[gates.index(gate) + 1 :]), None)


def limit_name(gate: str) -> str:
    """Return the limit that a gate belongs to: the gates of all keys of a task share one."""
    return gate.partition(_SEPARATOR)[0]


def lock_order(gates: Iterable[str]) -> list[str]:
    """Sort gates in the order in which they are processed and locked: jobs move to later ones."""
    return sorted(gates, key=lambda gate: (rank(gate), gate))


def rank(gate: str) -> int:
    """Return 0 for a gate of a key, 1 for one of a task, 2 for one of a queue."""
    return _RANK[gate[0]]


def describe_gate(gate: str) -> str:
    """Return a readable name of a gate."""
    name, separator, key = gate.partition(_SEPARATOR)
    kind, _, what = name.partition(":")
    return f"key {key!r} of task {what}" if separator else f"{kind} {what}"


def affected_gates(row: LifecycleRow, decision: Decision) -> Sequence[str]:
    """Return the gates that may admit a job after this decision is written."""
    changes = decision.changes
    if not row.gates or not decision.result.applied:
        return ()
    if row.gate is not None and "gate" in changes and not decision.ends_job:  # admitted at its gate
        next_ = changes["gate"]
        return () if next_ is None else (next_,)
    return row.gates if row.gate is not None or "state" in changes or "gate" in changes else ()


def gates_in_use(row: LifecycleRow) -> Sequence[str]:
    """Return the gates that have admitted the job for its current or next attempt."""
    if row.gate is not None:
        return row.gates[: row.gates.index(row.gate)]
    return row.gates if row.state in (State.QUEUED, State.RUNNING) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """Statistics of one gate.

    waiting: number of jobs that wait at it; counted up to 10,000
    in_use: number of jobs that hold one of its slots: queued, at a later gate, or running
    holders: up to three of those, the longest first
    next_check_at: when it admits jobs again by itself; None if only the end of a job frees a slot
    """

    waiting: int = 0
    in_use: int = 0
    holders: tuple[UUID, ...] = ()
    next_check_at: Instant | None = None
