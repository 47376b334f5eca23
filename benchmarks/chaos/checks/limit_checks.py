"""Checks of limits: concurrent attempts, starts, and jobs waiting at gates. No Windlass code.

A limit counts attempts as the store does: from the claim to the settle or the rescue. The work of a
stale worker after its rescue is not an attempt. Other checks verify that it has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chaos.bases import Row
from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.checks.intervals import EVER, Span, below, common, longest, most_of
from benchmarks.chaos.checks.rescue_times import SECOND, SLACK

GENEROUS = 10.0  # additional seconds for the admission on a slow machine
LOST = {"crash", "give-up"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """One attempt of a job: when it was ready, queued, started and over."""

    job: str
    fence: int
    outcome: str
    gates: tuple[str, ...]
    ready: int
    let_in: int | None
    started: int | None
    over: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Observed limits. `most` is the maximum of each: attempts at once, starts in a period.

    `longest` is the longest wait in seconds at gates with free capacity. `late` counts the waits
    longer than a lease and the slack.
    """

    most: dict[str, int]
    waited: int
    longest: float
    late: int


def seen(it: Evidence) -> Gates | None:
    """None if nothing was limited."""
    if not limits(it):
        return None
    found = list(stints(it))
    most: dict[str, int] = {}
    for gate, own in _by_gate(found).items():
        name, limit = _limit(it, gate)
        most[name] = max(most.get(name, 0), most_of(_counted(own, limit)))
    stood = [seconds for _, seconds in standing(it, found)]
    return Gates(
        most=most,
        waited=sum((stint.let_in or stint.over) > stint.ready for stint in found),
        longest=round(max(stood, default=0.0), 2),
        late=sum(seconds > it.plan["lease"] + SLACK for seconds in stood),
    )


# -- reading the tables


def limits(it: Evidence) -> dict[str, Row]:
    found: dict[str, Row] = it.plan.get("limits") or {}
    return found


def stints(it: Evidence) -> Iterator[Stint]:
    """Those that left their jobs unfinished, from the log, and the last of each, from its row."""
    for row in it.jobs:
        gates, ready = _gates(it, row), row["created_at"]
        for past in it.attempts(row):
            attempt, at = past["data"], past["at"]
            yield Stint(
                job=row["id"],
                fence=past["fence"],
                outcome=attempt["outcome"],
                gates=gates,
                ready=ready,
                let_in=attempt["queued_at"],
                started=attempt["started_at"],
                over=at,
            )
            ready = at + round((attempt["delay"] or 0) * SECOND)
        yield Stint(
            job=row["id"],
            fence=row["fence"] if row["started_seq"] else row["fence"] + 1,
            outcome=row["trigger"],
            gates=gates,
            ready=ready,
            let_in=row["queued_at"] if row["queued_seq"] else None,
            started=row["started_at"] if row["started_seq"] else None,
            over=it.now if row["ended_at"] is None else row["ended_at"],
        )


def _gates(it: Evidence, row: Row) -> tuple[str, ...]:
    """Return the gates computed from the enqueued job, not from its row."""
    names = (f"key:{row['task']}", f"task:{row['task']}", f"queue:{row['queue']}")
    keys = (f"={row['limit_key']}", "", "")
    return tuple(name + key for name, key in zip(names, keys, strict=True) if name in limits(it))


def _limit(it: Evidence, gate: str) -> tuple[str, Row]:
    name = gate.partition("=")[0]
    return name, limits(it)[name]


def _bound(limit: Row) -> int:
    """Of attempts at once, or of starts in a period: in a storm, a limit is one of the two."""
    return int(limit["starts"] if "period" in limit else limit["concurrency"])


def _by_gate(found: Iterable[Stint]) -> dict[str, list[Stint]]:
    gates: dict[str, list[Stint]] = {}
    for stint in found:
        for gate in stint.gates:
            gates.setdefault(gate, []).append(stint)
    return gates


# -- how full a gate was


def _counted(own: Iterable[Stint], limit: Row) -> Iterator[Span]:
    """How long each attempt counts: while it is open, or for a period from its start."""
    for stint in own:
        if stint.started is not None:
            yield stint.started, _until(stint, limit)


def _taken(own: Iterable[Stint], limit: Row) -> Iterator[Span]:
    """Return how long each holds capacity, from its admission on."""
    for stint in own:
        if stint.let_in is not None:
            yield stint.let_in, _until(stint, limit)


def _until(stint: Stint, limit: Row) -> int:
    if "period" in limit and stint.started is not None:
        period: float = limit["period"]
        return stint.started + round(period * SECOND)
    return stint.over


def standing(it: Evidence, found: Sequence[Stint]) -> Iterator[tuple[Stint, float]]:
    """Yield jobs that waited although no gate was full, with the seconds."""
    open_at = {}
    for gate, own in _by_gate(found).items():
        _, limit = _limit(it, gate)
        open_at[gate] = below(_taken(own, limit), _bound(limit))
    room: dict[tuple[str, ...], list[Span]] = {}
    for stint in found:
        if not stint.gates:
            continue
        if stint.gates not in room:
            room[stint.gates] = [EVER]
            for gate in stint.gates:
                room[stint.gates] = common(room[stint.gates], open_at[gate])
        until = stint.over if stint.let_in is None else stint.let_in
        if (stood := longest(room[stint.gates], (stint.ready, until))) > 0:
            yield stint, stood / SECOND


# -- the checks


def no_limit_was_exceeded(it: Evidence) -> Iterator[str]:
    for gate, own in sorted(_by_gate(stints(it)).items()):
        _, limit = _limit(it, gate)
        most = most_of(_counted(own, limit))
        if most > _bound(limit):
            what = (
                f"starts within {limit['period']:g} s" if "period" in limit else "attempts at once"
            )
            yield f"{gate}: {most} {what}; the limit is {_bound(limit)}"


def no_job_waited_at_an_open_gate(it: Evidence) -> Iterator[str]:
    """A slot that a dead worker's job held is free within a lease and the slack."""
    for stint, seconds in standing(it, list(stints(it))):
        if seconds > it.plan["lease"] + SLACK + GENEROUS:
            gates = " and ".join(stint.gates)
            yield f"job {stint.job} stood for {seconds:.1f} s before {gates}, which had room"


def attempts_ran_while_they_counted(it: Evidence) -> Iterator[str]:
    """By the ledger: no attempt ran before its claim, and only stale ones after their end."""
    for stint in stints(it) if limits(it) else ():
        lines = [line for line in it.runs.get(stint.job, ()) if line["fence"] == stint.fence]
        if lines and (stint.started is None or lines[0]["at"] < stint.started):
            yield f"job {stint.job} ran with fence {stint.fence} before it was claimed"
        elif lines and lines[-1]["at"] > stint.over and stint.outcome not in LOST:
            yield f"job {stint.job} ran with fence {stint.fence} after its end"


CHECKS = (
    no_limit_was_exceeded,
    no_job_waited_at_an_open_gate,
    attempts_ran_while_they_counted,
)
