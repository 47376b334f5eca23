"""Result of one round: figures, and the check that every job ran exactly once."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.peers.child.job_ledger import JobTally
from benchmarks.peers.plan import Plan

PERCENT = 100


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Whether every job ran exactly once."""

    jobs: int
    missing: int
    twice: int

    @classmethod
    def of(cls, tally: JobTally) -> RunCheck:
        return cls(tally.jobs, tally.missing, tally.twice)

    @property
    def exactly_once(self) -> bool:
        return not (self.missing or self.twice)

    def __str__(self) -> str:
        kinds = {"never ran": self.missing, "ran twice": self.twice}
        problems = [f"{n:,} {what}" for what, n in kinds.items() if n]
        return f"of {self.jobs:,} jobs {', '.join(problems) or 'each ran exactly once'}"


@dataclass(slots=True)
class RoundResult:
    """Figures of one round by key; `error` is the reason for missing figures."""

    figures: dict[str, float] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    check: RunCheck | None = None
    error: str | None = None

    def add(self, plan: Plan, figures: Mapping[str, float | None]) -> None:
        """Add the figures that the plan includes."""
        self.figures |= {
            key: value
            for key, value in figures.items()
            if value is not None and key.partition("_")[0] in plan.only
        }


def percentiles(latencies: list[float]) -> dict[str, float]:
    if len(latencies) == 1:
        return {"latency_p50": latencies[0], "latency_p99": latencies[0]}
    cuts = statistics.quantiles(latencies, n=PERCENT, method="inclusive")
    return {"latency_p50": cuts[49], "latency_p99": cuts[98]}
