"""Targets of Windlass: a limit for one figure or ratio, and whether a comparison reached it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.bench.results import ComparisonResult


@dataclass(frozen=True, slots=True)
class Target:
    """`value` reads the figure from a result, or returns None if it was not measured."""

    text: str
    unit: str
    value: Callable[[ComparisonResult], float | None]
    reached: Callable[[float], bool]

    def evaluate(self, result: ComparisonResult) -> TargetResult:
        value = self.value(result)
        reached = None if value is None else self.reached(value)
        return TargetResult(self.text, value, self.unit, reached)


@dataclass(frozen=True, slots=True)
class TargetResult:
    """`value` and `reached` are None if the figure was not measured."""

    text: str
    value: float | None
    unit: str
    reached: bool | None


def at_least(text: str, factor: float, value: Callable[[ComparisonResult], float | None]) -> Target:
    return Target(text, "x", value, lambda ratio: ratio >= factor)


def at_most(
    text: str, limit: float, value: Callable[[ComparisonResult], float | None], unit: str = "x"
) -> Target:
    return Target(text, unit, value, lambda found: found <= limit)


MAX_WORKER_MB = 80
SQLITE_TARGETS = (
    at_least("drain at least 8x huey's", 8, lambda result: result.ratio("drain", "huey")),
    at_least(
        "bulk at least 1.5x litequeue's", 1.5, lambda result: result.ratio("bulk", "litequeue")
    ),
    at_most(
        "latency p50 at most litequeue's",
        1,
        lambda result: result.ratio("latency_p50", "litequeue"),
    ),
    at_most(
        "idle worker at most 1 % of a core",
        1,
        lambda result: result.windlass_median("idle"),
        "%",
    ),
    Target(
        "worker under 80 MB (RSS)",
        "MB",
        lambda result: result.windlass_median("memory_rss"),
        lambda size: size < MAX_WORKER_MB,
    ),
)
