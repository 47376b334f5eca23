"""Checks of limits: concurrent attempts, starts, and jobs waiting at gates. No Windlass code.

A limit counts attempts as the store does: from the claim to the settle or the rescue. The work of a
stale worker after its rescue is not an attempt. Other checks verify that it has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.checks.intervals import (
    ALL_TIME,
    Span,
    below,
    intersection,
    longest_overlap,
    max_overlap,
)
from benchmarks.chaos.checks.rescue_times import SECOND, SLACK
from benchmarks.chaos.stores import Row

ADMISSION_SLACK = 10.0  # additional seconds for the admission on a slow machine
LOST = {"crash", "give-up"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedAttempt:
    """One attempt of a job under limits: when it was ready, queued, started and ended."""

    job: str
    fence: int
    outcome: str
    gates: tuple[str, ...]
    ready: int
    queued: int | None
    started: int | None
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLimits:
    """Observed limits. `most` is the maximum of each: attempts at once, starts in a period.

    `longest` is the longest wait in seconds at gates with free capacity. `late` counts the waits
    longer than a lease and the slack.
    """

    most: dict[str, int]
    waited: int
    longest: float
    late: int


def observed_limits(evidence: Evidence) -> ObservedLimits | None:
    """Return None without limits."""
    if not limits(evidence):
        return None
    found = list(limited_attempts(evidence))
    most: dict[str, int] = {}
    for gate, own in _by_gate(found).items():
        name, limit = _limit(evidence, gate)
        most[name] = max(most.get(name, 0), max_overlap(_counted(own, limit)))
    waits = [seconds for _, seconds in waits_at_open_gates(evidence, found)]
    return ObservedLimits(
        most=most,
        waited=sum((limited.queued or limited.ended) > limited.ready for limited in found),
        longest=round(max(waits, default=0.0), 2),
        late=sum(seconds > evidence.plan["lease"] + SLACK for seconds in waits),
    )


# -- reading the tables


def limits(evidence: Evidence) -> dict[str, Row]:
    found: dict[str, Row] = evidence.plan.get("limits") or {}
    return found


def limited_attempts(evidence: Evidence) -> Iterator[LimitedAttempt]:
    """Yield the attempts in the log, and the last one of each job from its row."""
    for row in evidence.jobs:
        gates, ready = _gates(evidence, row), row["created_at"]
        for past in evidence.attempts(row):
            attempt, at = past["data"], past["at"]
            yield LimitedAttempt(
                job=row["id"],
                fence=past["fence"],
                outcome=attempt["outcome"],
                gates=gates,
                ready=ready,
                queued=attempt["queued_at"],
                started=attempt["started_at"],
                ended=at,
            )
            ready = at + round((attempt["delay"] or 0) * SECOND)
        yield LimitedAttempt(
            job=row["id"],
            fence=row["fence"] if row["started_seq"] else row["fence"] + 1,
            outcome=row["trigger"],
            gates=gates,
            ready=ready,
            queued=row["queued_at"] if row["queued_seq"] else None,
            started=row["started_at"] if row["started_seq"] else None,
            ended=evidence.now if row["ended_at"] is None else row["ended_at"],
        )


def _gates(evidence: Evidence, row: Row) -> tuple[str, ...]:
    """Return the gates computed from the enqueued job, not from its row."""
    names = (f"key:{row['task']}", f"task:{row['task']}", f"queue:{row['queue']}")
    keys = (f"={row['limit_key']}", "", "")
    return tuple(
        name + key for name, key in zip(names, keys, strict=True) if name in limits(evidence)
    )


def _limit(evidence: Evidence, gate: str) -> tuple[str, Row]:
    name = gate.partition("=")[0]
    return name, limits(evidence)[name]


def _bound(limit: Row) -> int:
    """Return the maximum starts in a period, or concurrent attempts; a storm sets one of them."""
    return int(limit["starts"] if "period" in limit else limit["concurrency"])


def _by_gate(found: Iterable[LimitedAttempt]) -> dict[str, list[LimitedAttempt]]:
    gates: dict[str, list[LimitedAttempt]] = {}
    for limited in found:
        for gate in limited.gates:
            gates.setdefault(gate, []).append(limited)
    return gates


# -- use of a gate


def _counted(own: Iterable[LimitedAttempt], limit: Row) -> Iterator[Span]:
    """Return how long each attempt counts: until its end, or for a period from its start."""
    for limited in own:
        if limited.started is not None:
            yield limited.started, _until(limited, limit)


def _taken(own: Iterable[LimitedAttempt], limit: Row) -> Iterator[Span]:
    """Return how long each holds capacity, from its admission on."""
    for limited in own:
        if limited.queued is not None:
            yield limited.queued, _until(limited, limit)


def _until(limited: LimitedAttempt, limit: Row) -> int:
    if "period" in limit and limited.started is not None:
        period: float = limit["period"]
        return limited.started + round(period * SECOND)
    return limited.ended


def waits_at_open_gates(
    evidence: Evidence, found: Sequence[LimitedAttempt]
) -> Iterator[tuple[LimitedAttempt, float]]:
    """Yield jobs that waited although no gate was full, with the seconds."""
    open_at = {}
    for gate, own in _by_gate(found).items():
        _, limit = _limit(evidence, gate)
        open_at[gate] = below(_taken(own, limit), _bound(limit))
    free: dict[tuple[str, ...], list[Span]] = {}
    for limited in found:
        if not limited.gates:
            continue
        if limited.gates not in free:
            free[limited.gates] = [ALL_TIME]
            for gate in limited.gates:
                free[limited.gates] = intersection(free[limited.gates], open_at[gate])
        until = limited.ended if limited.queued is None else limited.queued
        if (waited := longest_overlap(free[limited.gates], (limited.ready, until))) > 0:
            yield limited, waited / SECOND


# -- the checks


def no_limit_was_exceeded(evidence: Evidence) -> Iterator[str]:
    for gate, own in sorted(_by_gate(limited_attempts(evidence)).items()):
        _, limit = _limit(evidence, gate)
        most = max_overlap(_counted(own, limit))
        if most > _bound(limit):
            what = (
                f"starts within {limit['period']:g} s" if "period" in limit else "attempts at once"
            )
            yield f"{gate}: {most} {what}; the limit is {_bound(limit)}"


def no_job_waited_at_an_open_gate(evidence: Evidence) -> Iterator[str]:
    """A slot of a dead worker is free again within a lease and the slack."""
    for limited, seconds in waits_at_open_gates(evidence, list(limited_attempts(evidence))):
        if seconds > evidence.plan["lease"] + SLACK + ADMISSION_SLACK:
            gates = " and ".join(limited.gates)
            yield f"job {limited.job} waited {seconds:.1f} s at {gates} with free capacity"


def attempts_ran_while_they_counted(evidence: Evidence) -> Iterator[str]:
    """By the ledger: no attempt ran before its claim, and only stale ones after their end."""
    for limited in limited_attempts(evidence) if limits(evidence) else ():
        lines = [
            line for line in evidence.runs.get(limited.job, ()) if line["fence"] == limited.fence
        ]
        if lines and (limited.started is None or lines[0]["at"] < limited.started):
            yield f"job {limited.job} ran with fence {limited.fence} before it was claimed"
        elif lines and lines[-1]["at"] > limited.ended and limited.outcome not in LOST:
            yield f"job {limited.job} ran with fence {limited.fence} after its end"


CHECKS = (
    no_limit_was_exceeded,
    no_job_waited_at_an_open_gate,
    attempts_ran_while_they_counted,
)
