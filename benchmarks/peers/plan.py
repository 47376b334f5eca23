"""Plan of a benchmark run: what to measure, and how many jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

BULK_SIZE = 1_000  # jobs per call
CONCURRENT_CALLS = 100  # concurrent single calls
THROUGHPUT = ("single", "concurrent", "bulk", "drain", "memory")
PAIR = ("pair",)
IDLE_WORKER = ("latency", "idle")
GROUPS = ("single", "concurrent", "bulk", "drain", "pair", "memory", *IDLE_WORKER)
# Arguments: next step, steps done, steps in total.
ProgressCallback: TypeAlias = Callable[[str, int, int], None]


class BenchError(Exception):
    """Raised for an invalid option, and if a system cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A drain runs `jobs` jobs: a tenth enqueued one by one, the others in bulk.

    If concurrent calls are measured, they enqueue another tenth. An idle worker waits for `pause`
    seconds, and its CPU time is read over the last `idle` seconds. Then `starts` jobs are enqueued,
    `gap` seconds apart.
    """

    jobs: int
    rounds: int = 3
    pause: float = 60.0
    gap: float = 2.0
    starts: int = 20
    idle: float = 20.0
    quick: bool = False
    only: tuple[str, ...] = GROUPS

    @classmethod
    def of(
        cls,
        *,
        quick: bool = False,
        jobs: int | None = None,
        rounds: int | None = None,
        only: Sequence[str] = (),
    ) -> Plan:
        for option, number in (("--jobs", jobs), ("--rounds", rounds)):
            if number is not None and number < 1:
                raise BenchError(f"{option} is {number}; it must be at least 1")
        unknown = sorted(set(only) - set(GROUPS))
        if unknown:
            raise BenchError(f"--only: unknown {', '.join(unknown)}; use {', '.join(GROUPS)}")
        groups = tuple(group for group in GROUPS if group in only) or GROUPS
        if quick:
            return cls(
                jobs=jobs or 5_000,
                rounds=rounds or 3,
                pause=4.0,
                gap=0.2,
                idle=3.0,
                quick=True,
                only=groups,
            )
        return cls(jobs=jobs or 50_000, rounds=rounds or 3, only=groups)

    @property
    def single_jobs(self) -> int:
        """The number of jobs enqueued one by one; the first warms up and is not timed."""
        return max(2, self.jobs // 10) if "single" in self.only else 1

    @property
    def concurrent_jobs(self) -> int:
        return max(2, self.jobs // 10) if "concurrent" in self.only else 0

    @property
    def bulk_jobs(self) -> int:
        if set(self.only) & {"bulk", "drain", "pair", "memory"}:
            return max(1, self.jobs - self.single_jobs - self.concurrent_jobs)
        return 0

    @property
    def total(self) -> int:
        """The number of jobs of a round."""
        return self.single_jobs + self.concurrent_jobs + self.bulk_jobs

    def with_job_share(self, job_share: float) -> Plan:
        """Return the plan of a system that gets only a share of the jobs."""
        return replace(self, jobs=max(1, round(self.jobs * job_share)))

    @property
    def measures_throughput(self) -> bool:
        return bool(set(self.only) & set(THROUGHPUT))

    @property
    def measures_pair(self) -> bool:
        return bool(set(self.only) & set(PAIR))

    @property
    def measures_idle_worker(self) -> bool:
        return bool(set(self.only) & set(IDLE_WORKER))

    def settings(self) -> dict[str, Any]:
        return asdict(self) | {"bulk_call": BULK_SIZE, "concurrent_calls": CONCURRENT_CALLS}
