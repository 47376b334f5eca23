"""Times until the jobs of a killed worker were claimable, and claimed, again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.stores import Row

SECOND = 1e6
SLACK = 2.0  # seconds after lease expiry in which the job of a dead worker must be claimable
KILLED = {"SIGKILL"}
ALL_KILLED = "SIGKILL of all"  # this fault also kills all sweepers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescue:
    """Seconds after the kill. `swept`: a sweeper was running all the time."""

    rescued: float
    claimed: float | None
    swept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueTimes:
    """Times of the swept rescues. `late` counts those beyond the lease and the slack."""

    number: int
    median: float
    most: float  # 99 % of them
    longest: float
    claimed: float  # the longest time until another claim
    late: int
    unswept: int
    unswept_longest: float


def rescue_times(evidence: Evidence) -> RescueTimes | None:
    """Return None if no killed worker held a job."""
    found = list(rescues(evidence))
    swept = [rescue for rescue in found if rescue.swept]
    if not swept:
        return None
    rescued = sorted(rescue.rescued for rescue in swept)
    return RescueTimes(
        number=len(rescued),
        median=_at(rescued, 0.5),
        most=_at(rescued, 0.99),
        longest=_at(rescued, 1.0),
        claimed=round(max(rescue.claimed or 0.0 for rescue in swept), 2),
        late=sum(wait > evidence.plan["lease"] + SLACK for wait in rescued),
        unswept=len(found) - len(rescued),
        unswept_longest=round(
            max((rescue.rescued for rescue in found if not rescue.swept), default=0), 2
        ),
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
                after: Row = past[index + 1]["data"] if index + 1 < len(past) else row
                started = after["started_at"]
                # The ledger has the kill of all processes after the kill of this worker.
                others = [moment for moment in dark if at < moment < lost["at"]]
                yield Rescue(
                    rescued=(lost["at"] - at) / SECOND,
                    claimed=None if started is None else (started - at) / SECOND,
                    swept=len(others) < 2,
                )


def _kill_of(lost: Row, killed: dict[int, list[int]]) -> int | None:
    attempt = lost["data"]
    if attempt["outcome"] != "crash":
        return None
    moments = killed.get(int(attempt["worker"].split("-")[-2]), [])
    return next((at for at in moments if attempt["started_at"] <= at <= lost["at"]), None)
