"""Times until the jobs of a killed worker were claimable, and claimed, again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.stores import Row

SECOND = 1e6
SLACK = 2.0  # seconds after its lease in which a dead worker's job is promised to be claimable
KILLED = {"SIGKILL"}
ALL_KILLED = "SIGKILL of all"  # this fault also kills all sweepers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """Seconds after the kill. `watched`: a sweeper was running all the time."""

    taken: float
    claimed: float | None
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueTimes:
    """Of the rescues that were watched. `late` counts those beyond the lease and the slack."""

    number: int
    median: float
    most: float  # 99 % of them
    longest: float
    claimed: float  # the longest until another worker had it
    late: int
    unwatched: int
    unwatched_longest: float


def rescue_times(evidence: Evidence) -> RescueTimes | None:
    """None if no worker was killed that held a job."""
    found = list(rescues(evidence))
    watched = [one for one in found if one.watched]
    if not watched:
        return None
    taken = sorted(one.taken for one in watched)
    return RescueTimes(
        number=len(taken),
        median=_at(taken, 0.5),
        most=_at(taken, 0.99),
        longest=_at(taken, 1.0),
        claimed=round(max(one.claimed or 0.0 for one in watched), 2),
        late=sum(wait > evidence.plan["lease"] + SLACK for wait in taken),
        unwatched=len(found) - len(taken),
        unwatched_longest=round(max((one.taken for one in found if not one.watched), default=0), 2),
    )


def _at(sorted_values: Sequence[float], part: float) -> float:
    return round(sorted_values[min(len(sorted_values) - 1, int(part * len(sorted_values)))], 2)


def rescues(evidence: Evidence) -> Iterator[Rescue]:
    """Yield each attempt lost by the kill of its worker, matched by the worker's name."""
    killed: dict[int, list[int]] = {}
    dark = [line["at"] for line in evidence.faults if line["fault"] == ALL_KILLED]
    for line in evidence.faults:
        if line["fault"] in KILLED:
            killed.setdefault(line["pid"], []).append(line["at"])
    for row in evidence.jobs:
        past = evidence.attempts(row)
        for index, lost in enumerate(past):
            at = _kill_of(lost, killed)
            if at is not None:
                after: Row = past[index + 1]["facts"] if index + 1 < len(past) else row
                started = after["started_at"]
                # The kill of everything that killed this worker is noted after it.
                others = [moment for moment in dark if at < moment < lost["at"]]
                yield Rescue(
                    taken=(lost["at"] - at) / SECOND,
                    claimed=None if started is None else (started - at) / SECOND,
                    watched=len(others) < 2,
                )


def _kill_of(lost: Row, killed: dict[int, list[int]]) -> int | None:
    facts = lost["facts"]
    if facts["outcome"] != "crash":
        return None
    moments = killed.get(int(facts["worker"].split("-")[-2]), [])
    return next((at for at in moments if facts["started_at"] <= at <= lost["at"]), None)
