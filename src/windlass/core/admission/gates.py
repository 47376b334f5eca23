"""Concurrency and rate limits: gates, permits, and fair queue positions.

A limit applies to a queue, to a task, or to each key of a task. A limited job waits at a *gate*,
outside the queue order, until the limit has capacity. It then holds a *permit* for its next
attempt. A job is checked at one gate after the other, the narrowest first: a job that cannot be
admitted at a narrow gate does not occupy a slot of a wide one.

The job's row decides whether a permit counts: the job must be queued, running, or waiting at a
later gate. So no slot can leak when a process dies.

Keys share a queue fairly: the next job of each key is placed beside the next jobs of the other
keys, whatever the backlog of any key (docs/design/decisions/0017).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.retry import MAX_DELAY
from windlass.core.decisions.transition import Decision
from windlass.core.duration import parse_rate as read_rate
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import State
from windlass.core.value import positional_value

LIMIT = "limit"  # record kind of limits; the record key is the name of the limit
KEY, TASK, QUEUE = "key:", "task:", "queue:"  # prefixes of limit names, in the order of gates
_ORDER = (KEY, TASK, QUEUE)
_RANK = {kind[0]: queue_position for queue_position, kind in enumerate(_ORDER)}
_SEPARATOR = "\x1f"  # between the task and the key in the name of a gate
MAX_LIMIT = 100_000  # concurrent jobs, or starts in a period: each is a row at its gate
BATCH = 1000  # jobs admitted at a gate in one write
UNLIMITED = 2**62
MIN_PERIOD = 0.001  # seconds
MAX_HOLDERS = 3  # jobs listed as holders of a gate's slots


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """`Limit(concurrency=5)`, `Limit(rate="100/1m")`, or both.

    A rate limits the starts in any window of the period: "10/s", "100/1m". `starts=100, period=60`
    means the same.

    concurrency: maximum number of jobs that run at the same time
    starts: maximum number of starts in any window of `period`
    period: length of the window, in seconds
    """

    concurrency: int | None = None
    starts: int | None = None
    period: float | None = None

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        starts: int | None = None,
        period: float | None = None,
    ) -> None:
        if rate is not None:
            if starts is not None or period is not None:
                raise InvalidArgumentError(
                    "a limit has one rate: give rate=, or starts= and period="
                )
            starts, period = read_rate(rate)
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "period", period)
        self._check()

    def _check(self) -> None:
        if self.concurrency is None and self.starts is None:
            raise InvalidArgumentError(
                'a limit needs concurrency= or rate=: Limit(concurrency=5, rate="100/1m")'
            )
        if (self.starts is None) != (self.period is None):
            raise InvalidArgumentError("a rate needs both starts= and period= (seconds)")
        for name in ("concurrency", "starts"):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and 0 < number <= MAX_LIMIT):
                raise InvalidArgumentError(
                    f"{name} is {number!r}; it must be an integer from 1 to {MAX_LIMIT:,}"
                )
        if self.period is not None and not MIN_PERIOD <= self.period <= MAX_DELAY:
            raise InvalidArgumentError(
                f"period is {self.period} s; it must be between 1 ms and 10 years"
            )

    @property
    def length(self) -> int:
        """Return the period in microseconds."""
        return round((self.period or 0) * SECOND)

    def encode(self) -> dict[str, Any]:
        return {"concurrency": self.concurrency, "starts": self.starts, "period": self.period}

    def __str__(self) -> str:
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.starts is not None:
            parts.append(f"{self.starts:,} starts in {self.period:g} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSetting:
    """Value of a limit record: the limit declared in code, and the override set at run time."""

    declared: Limit | None = None
    override: Limit | None = None

    @property
    def limit(self) -> Limit | None:
        """Return the limit in effect."""
        return self.override or self.declared

    def encode(self) -> bytes:
        """Encode as JSON. The fields of the limit in effect come first: SQL reads them directly."""
        limit = self.limit
        assert limit is not None, "a setting without a limit is deleted, not stored"
        facts = limit.encode() | {
            "declared": self.declared and self.declared.encode(),
            "override": self.override and self.override.encode(),
        }
        return json.dumps(facts, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> LimitSetting:
        facts = json.loads(data)
        return LimitSetting(declared=_limit(facts["declared"]), override=_limit(facts["override"]))


def _limit(facts: dict[str, Any] | None) -> Limit | None:
    if facts is None:
        return None
    return Limit(**{name: facts[name] for name in ("concurrency", "starts", "period")})


@lru_cache(maxsize=256)
def decode_limit(data: bytes | None) -> Limit | None:
    """Return the limit in effect of an encoded `LimitSetting`, if any."""
    return None if data is None else LimitSetting.decode(data).limit


# -- gates


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


def check_limit_name(name: str) -> None:
    kind = next((kind for kind in _ORDER if name.startswith(kind)), None)
    if kind is None or name == kind:
        raise InvalidArgumentError(
            f"{name!r} is not the name of a limit; write queue:NAME, task:NAME, or "
            "key:NAME (each key of a task)"
        )


def affected_gates(row: LifecycleRow, decision: Decision) -> Sequence[str]:
    """Return the gates that may admit a job after this decision is written."""
    changes = decision.changes
    if not row.gates or not decision.result.applied:
        return ()
    if row.gate is not None and "gate" in changes and not decision.ends:  # admitted at its gate
        next_ = changes["gate"]
        return () if next_ is None else (next_,)
    return row.gates if row.gate is not None or "state" in changes or "gate" in changes else ()


def held_gates(row: LifecycleRow) -> Sequence[str]:
    """Return the gates where the job holds a slot for its current or next attempt."""
    if row.gate is not None:
        return row.gates[: row.gates.index(row.gate)]
    return row.gates if row.state in (State.QUEUED, State.RUNNING) else ()


# -- permits


@positional_value
class Permit:
    """Admission of one attempt, identified by its fence, at one gate."""

    fence: int
    at: Instant
    started_at: Instant | None = None


def next_permit(row: LifecycleRow, now: Instant) -> Permit:
    """Return a permit for the next attempt of a job."""
    return Permit(row.fence + 1, now)


def holds_slot(permit: Permit, row: LifecycleRow | None) -> bool:
    """Whether the permit occupies a slot: its attempt runs or can still start."""
    if row is None or row.fence > permit.fence:
        return False
    if row.fence == permit.fence:
        return row.state is State.RUNNING
    return row.state is State.QUEUED or row.gate is not None


def with_start(permit: Permit, row: LifecycleRow | None) -> Permit:
    """Set the start of its attempt, once known; of a deleted job, the earliest possible one."""
    if permit.started_at is not None:
        return permit
    if row is None:
        return Permit(permit.fence, permit.at, permit.at)
    if row.fence == permit.fence and row.started_at is not None:
        return Permit(permit.fence, permit.at, row.started_at)
    return permit


@positional_value
class Capacity:
    """How many jobs a gate can admit now.

    `next_check_at` is when starts of the rate limit expire; None if only the end of a job helps.
    """

    free: int
    next_check_at: Instant | None
    kept: Sequence[bool]  # for each permit, whether it still counts


def capacity(limit: Limit | None, permits: Sequence[tuple[Permit, bool]], now: Instant) -> Capacity:
    """Compute the capacity of a gate from all its permits, each with whether it holds a slot.

    Permits are also issued while the limit is removed: a limit that is set again counts all
    running jobs.
    """
    next_check_at, started = None, 0
    kept = [holding for _, holding in permits]
    if limit is not None and limit.starts is not None:
        until = [_counts_until(permit, holding, limit.length, now) for permit, holding in permits]
        kept = [holding or end > now for (_, holding), end in zip(permits, until, strict=True)]
        counted = sorted(end for end in until if end > now)
        started = len(counted)
        if started >= limit.starts:
            next_check_at = counted[started - limit.starts]
    held = sum(holding for _, holding in permits)
    return Capacity(free_slots(limit, held, started), next_check_at, kept)


def free_slots(limit: Limit | None, holding: int, started: int) -> int:
    """Return how many jobs can be admitted, given the held slots and the starts that count."""
    free = UNLIMITED
    if limit is not None and limit.starts is not None:
        free = limit.starts - started
    if limit is not None and limit.concurrency is not None:
        free = min(free, limit.concurrency - holding)
    return max(free, 0)


def _counts_until(permit: Permit, holding: bool, length: int, now: Instant) -> Instant:
    """Return the end of the window in which its start counts.

    An attempt that can still start counts from now on.
    """
    if permit.started_at is not None:
        return permit.started_at + length
    return now + length if holding else now


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """Statistics of one gate.

    waiting: number of jobs that wait at it; counted up to 10,000
    holding: number of jobs that hold one of its slots: queued, at a later gate, or running
    holders: up to three of those, the longest first
    next_check_at: when it admits jobs again by itself; None if only the end of a job frees a slot
    """

    waiting: int = 0
    holding: int = 0
    holders: tuple[UUID, ...] = ()
    next_check_at: Instant | None = None


# -- fair positions


def queue_position(key: str | None, arrival: int, first: int | None, last: int | None) -> int:
    """Return the queue position of a job, so that keys share the queue fairly.

    `first` is the first position in the queue, `last` the last position of the job's key. A job
    without a key is placed in the order of arrival. A job with a key is placed behind the jobs of
    its key. If its key has none, it is placed right behind `first`: a new key never waits for the
    backlog of another one. Jobs of one key are two positions apart, so that others fit between.
    No job gets the position `first` itself: keys that return again and again could starve it.
    """
    if key is None or first is None:
        return arrival
    return first + 1 if last is None else max(first, last + 2)


def queue_order(row: JobRow) -> tuple[int, int, int]:
    """Sort key of jobs in a queue, or at a gate."""
    return -row.priority, row.position or 0, row.id.int
