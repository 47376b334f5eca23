"""Limits and turns: what keeps a job out of the line, and where it stands once it is let in.

A limit is set for a queue, for a task, or for each key of a task. A job that it concerns has to
pass a *gate*: it waits there, outside of the line, until there is room, and then holds a *pass* for
its next attempt. Its gates come one after the other, the narrowest first, so that nobody waits at a
wide gate who could not pass a narrow one. A pass is worth what its job's row says: it counts while
the job is in line or runs, or waits at a later gate. So no slot can leak, whoever dies.

Jobs with a key take turns: each key's next job stands beside the others' next, however many jobs
one of them has waiting (docs/design/decisions/0017).
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
from windlass.core.duration import rate as read_rate
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.row import JobRow, Standing
from windlass.core.job.state import State
from windlass.core.value import pair

LIMIT = "limit"  # the kind of records that say what is limited; the key is its name
KEY, TASK, QUEUE = "key:", "task:", "queue:"  # how names begin, in the order of gates
_ORDER = (KEY, TASK, QUEUE)
_RANK = {kind[0]: place for place, kind in enumerate(_ORDER)}
_APART = "\x1f"  # between the task and the key of a gate
MOST = 100_000  # that may run at once, or start in a period: each is a row at its gate
BATCH = 1000  # jobs that pass a gate in one write
UNLIMITED = 2**62
SHORTEST = 0.001  # seconds of a period
HOLDERS = 3  # jobs that are named as holding a slot


@dataclass(frozen=True, slots=True, init=False)
class Limit:
    """`Limit(concurrency=5)`, `Limit(rate="100/1m")`, or both.

    A rate says how many may start in any stretch of a time: "10/s", "100/1m". It may also be given
    as `starts=100, period=60`.

    concurrency: how many may run at once
    starts: how many may start in any stretch of `period`
    period: in seconds
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
                raise InvalidArgumentError("a limit has one rate: give rate=, or starts and period")
            starts, period = read_rate(rate)
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "period", period)
        self._check()

    def _check(self) -> None:
        if self.concurrency is None and self.starts is None:
            raise InvalidArgumentError(
                'a limit needs a concurrency, or a rate: Limit(concurrency=5, rate="100/1m")'
            )
        if (self.starts is None) != (self.period is None):
            raise InvalidArgumentError("a rate needs both: how many starts, in how many seconds")
        for name in ("concurrency", "starts"):
            number = getattr(self, name)
            if number is not None and not (type(number) is int and 0 < number <= MOST):
                raise InvalidArgumentError(
                    f"{name} is {number!r}; it must be a whole number from 1 to {MOST:,}"
                )
        if self.period is not None and not SHORTEST <= self.period <= MAX_DELAY:
            raise InvalidArgumentError(
                f"the period is {self.period} s; it must lie between 1 ms and 10 years"
            )

    @property
    def length(self) -> int:
        """The period in microseconds."""
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
class Setting:
    """What a limit's record holds: what the code declares, and what a person set over it."""

    declared: Limit | None = None
    given: Limit | None = None

    @property
    def limit(self) -> Limit | None:
        """The one that holds."""
        return self.given or self.declared

    def encode(self) -> bytes:
        """The limit that holds stands first, and plain: stores read it without this class."""
        limit = self.limit
        assert limit is not None, "a record of no limit is deleted"
        facts = limit.encode() | {
            "declared": self.declared and self.declared.encode(),
            "given": self.given and self.given.encode(),
        }
        return json.dumps(facts, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Setting:
        facts = json.loads(data)
        return Setting(declared=_limit(facts["declared"]), given=_limit(facts["given"]))


def _limit(facts: dict[str, Any] | None) -> Limit | None:
    if facts is None:
        return None
    return Limit(**{name: facts[name] for name in ("concurrency", "starts", "period")})


@lru_cache(maxsize=256)
def limit_of(data: bytes | None) -> Limit | None:
    """The limit that a record says, if there is one."""
    return None if data is None else Setting.decode(data).limit


# -- gates


def gates_of(queue: str, task: str, key: str | None, limited: Container[str]) -> tuple[str, ...]:
    """The gates that a new job has to pass, in order; `limited` holds the names of all limits."""
    found = []
    if key is not None and KEY + task in limited:
        found.append(f"{KEY}{task}{_APART}{key}")
    if TASK + task in limited:
        found.append(TASK + task)
    if QUEUE + queue in limited:
        found.append(QUEUE + queue)
    return tuple(found)


def after(gates: Sequence[str], gate: str) -> str | None:
    """The one that comes after a gate, unless it is the last."""
    return next(iter(gates[gates.index(gate) + 1 :]), None)


def limit_name(gate: str) -> str:
    """The name of the limit that a gate is there for: many keys have a gate each, and one limit."""
    return gate.partition(_APART)[0]


def in_order(gates: Iterable[str]) -> list[str]:
    """The order in which gates are looked at, and locked: whoever passes one comes to a later."""
    return sorted(gates, key=lambda gate: (rank(gate), gate))


def rank(gate: str) -> int:
    return _RANK[gate[0]]


def shown(gate: str) -> str:
    """A gate as people read it."""
    name, apart, key = gate.partition(_APART)
    kind, _, what = name.partition(":")
    return f"key {key!r} of task {what}" if apart else f"{kind} {what}"


def check_name(name: str) -> None:
    kind = next((kind for kind in _ORDER if name.startswith(kind)), None)
    if kind is None or name == kind:
        raise InvalidArgumentError(
            f"{name!r} names nothing that can be limited; write queue:NAME, task:NAME, or "
            "key:NAME for each key of a task"
        )


def touched(row: Standing, decision: Decision) -> Sequence[str]:
    """The gates that may have room, or somebody new to let in, once a decision is written."""
    changes = decision.changes
    if not row.gates or not decision.answer.applied:
        return ()
    if row.gate is not None and "gate" in changes and not decision.ends:  # it was let in
        later = changes["gate"]
        return () if later is None else (later,)
    return row.gates if row.gate is not None or "state" in changes or "gate" in changes else ()


def held(row: Standing) -> Sequence[str]:
    """The gates of which it holds a slot: those it passed for the attempt that runs, or comes."""
    if row.gate is not None:
        return row.gates[: row.gates.index(row.gate)]
    return row.gates if row.state in (State.QUEUED, State.RUNNING) else ()


# -- passes


@pair
class Pass:
    """The right of one attempt, by its fence, to have passed a gate."""

    fence: int
    at: Instant
    started_at: Instant | None = None


def next_pass(row: Standing, now: Instant) -> Pass:
    return Pass(row.fence + 1, now)


def holds(it: Pass, row: Standing | None) -> bool:
    """Whether it takes a slot: its attempt runs, or may yet start."""
    if row is None or row.fence > it.fence:
        return False
    if row.fence == it.fence:
        return row.state is State.RUNNING
    return row.state is State.QUEUED or row.gate is not None


def refreshed(it: Pass, row: Standing | None) -> Pass:
    """With the start of its attempt, as soon as that is known; of a deleted job, the earliest."""
    if it.started_at is not None:
        return it
    if row is None:
        return Pass(it.fence, it.at, it.at)
    if row.fence == it.fence and row.started_at is not None:
        return Pass(it.fence, it.at, row.started_at)
    return it


@pair
class Room:
    """How many may pass a gate now; else when to look again, unless an end brings it up."""

    free: int
    look_at: Instant | None
    kept: Sequence[bool]  # of the passes, which still count


def room(limit: Limit | None, passes: Sequence[tuple[Pass, bool]], now: Instant) -> Room:
    """From all passes of a gate, refreshed, each with whether it holds a slot.

    Where the limit was lifted, passes are given too: whoever sets it again finds all who are in.
    """
    look_at, started = None, 0
    kept = [holding for _, holding in passes]
    if limit is not None and limit.starts is not None:
        until = [_counts_until(it, holding, limit.length, now) for it, holding in passes]
        kept = [holding or end > now for (_, holding), end in zip(passes, until, strict=True)]
        counted = sorted(end for end in until if end > now)
        started = len(counted)
        if started >= limit.starts:
            look_at = counted[started - limit.starts]
    return Room(free(limit, sum(holding for _, holding in passes), started), look_at, kept)


def free(limit: Limit | None, holding: int, started: int) -> int:
    """How many may pass where so many hold a slot, and so many starts count."""
    room = UNLIMITED
    if limit is not None and limit.starts is not None:
        room = limit.starts - started
    if limit is not None and limit.concurrency is not None:
        room = min(room, limit.concurrency - holding)
    return max(room, 0)


def _counts_until(it: Pass, holding: bool, length: int, now: Instant) -> Instant:
    """The end of the stretch in which its start counts; one that may yet start counts from now."""
    if it.started_at is not None:
        return it.started_at + length
    return now + length if holding else now


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """A gate as it stands.

    waiting: how many jobs wait at it; counted up to 10,000
    holding: how many jobs hold one of its slots: in line, at a later gate, or running
    holders: up to three of those, the longest first
    look_at: when it is to be looked at again; None if only somebody's end makes room
    """

    waiting: int = 0
    holding: int = 0
    holders: tuple[UUID, ...] = ()
    look_at: Instant | None = None


# -- turns


def place(key: str | None, arrival: int, first: int | None, last: int | None) -> int:
    """Where a job stands: `first` of all is the first in this line, `last` the last of its key.

    Without a key, in the order of arrival. With one, behind its key's own, or, if there are none,
    right behind the first of all: so keys take turns, and a new one does not wait for anybody's
    backlog. A key's own jobs stand two apart, so that others fit between them. Nobody comes to
    stand beside the first: else some who come back after each turn could keep it from ending.
    """
    if key is None or first is None:
        return arrival
    return first + 1 if last is None else max(first, last + 2)


def line_order(row: JobRow) -> tuple[int, int, int]:
    """The order of a line: of a queue, or before a gate."""
    return -row.priority, row.position or 0, row.id.int
