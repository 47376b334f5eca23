"""Plan of a benchmark run: what to measure, and how many jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from windlass.core.errors import InvalidArgumentError

BULK = 1_000  # jobs a call
TOGETHER = 100  # concurrent single calls
THROUGHPUT = ("single", "together", "bulk", "drain", "memory")
PAIR = ("pair",)
WAITING = ("latency", "idle")
GROUPS = ("single", "together", "bulk", "drain", "pair", "memory", *WAITING)
ProgressCallback: TypeAlias = Callable[
    [str, int, int], None
]  # next step, steps done, steps in total


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
        for what, number in (("--jobs", jobs), ("--rounds", rounds)):
            if number is not None and number < 1:
                raise InvalidArgumentError(f"{what} is {number}; it must be at least 1")
        unknown = sorted(set(only) - set(GROUPS))
        if unknown:
            raise InvalidArgumentError(
                f"--only: unknown {', '.join(unknown)}; use {', '.join(GROUPS)}"
            )
        chosen = tuple(group for group in GROUPS if group in only) or GROUPS
        if quick:
            return cls(
                jobs=jobs or 5_000,
                rounds=rounds or 3,
                pause=4.0,
                gap=0.2,
                idle=3.0,
                quick=True,
                only=chosen,
            )
        return cls(jobs=jobs or 50_000, rounds=rounds or 3, only=chosen)

    @property
    def singles(self) -> int:
        """The number of jobs enqueued one by one; the first warms up and is not timed."""
        return max(2, self.jobs // 10) if "single" in self.only else 1

    @property
    def together(self) -> int:
        return max(2, self.jobs // 10) if "together" in self.only else 0

    @property
    def others(self) -> int:
        if set(self.only) & {"bulk", "drain", "pair", "memory"}:
            return max(1, self.jobs - self.singles - self.together)
        return 0

    @property
    def total(self) -> int:
        """The number of jobs of a round."""
        return self.singles + self.together + self.others

    def shared(self, share: float) -> Plan:
        """Return the plan of a side that gets only a share of the jobs."""
        return replace(self, jobs=max(1, round(self.jobs * share)))

    @property
    def throughput(self) -> bool:
        return bool(set(self.only) & set(THROUGHPUT))

    @property
    def pair(self) -> bool:
        return bool(set(self.only) & set(PAIR))

    @property
    def waiting(self) -> bool:
        return bool(set(self.only) & set(WAITING))

    def settings(self) -> dict[str, Any]:
        return asdict(self) | {"bulk_call": BULK, "calls_together": TOGETHER}
