"""Targets of Windlass on SQLite and on servers, and whether a comparison reached them.

A target is a limit for one figure or ratio of one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers.results import ComparisonResult


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


BARE = "bare"  # the limit of the server, not a peer
MAX_SQLITE_WORKER_MB = 80
MAX_SERVER_WORKER_MB = 100
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
        lambda size: size < MAX_SQLITE_WORKER_MB,
    ),
)


def _peer_medians(result: ComparisonResult, key: str, *, server: str | None = None) -> list[float]:
    """Return the medians of all peers, or of those on this kind of server."""
    return [
        median
        for name, system in result.systems.items()
        if name not in {"windlass", BARE} and server in {None, system.server}
        if (median := system.median(key)) is not None
    ]


def _to_fastest(
    key: str, peer_key: str = "", server: str | None = None
) -> Callable[[ComparisonResult], float | None]:
    """The figure of Windlass divided by the highest of the peers, of this or another figure."""

    def ratio(result: ComparisonResult) -> float | None:
        windlass, peers = (
            result.windlass_median(key),
            _peer_medians(result, peer_key or key, server=server),
        )
        return windlass / max(peers) if windlass is not None and peers else None

    return ratio


def _above_lowest(key: str) -> Callable[[ComparisonResult], float | None]:
    """The figure of Windlass minus the lowest of the peers on PostgreSQL."""

    def difference(result: ComparisonResult) -> float | None:
        windlass, peers = (
            result.windlass_median(key),
            _peer_medians(result, key, server="postgresql"),
        )
        return windlass - min(peers) if windlass is not None and peers else None

    return difference


def _to_lowest(key: str) -> Callable[[ComparisonResult], float | None]:
    """The figure of Windlass divided by the lowest of the peers on PostgreSQL."""

    def ratio(result: ComparisonResult) -> float | None:
        windlass, peers = (
            result.windlass_median(key),
            _peer_medians(result, key, server="postgresql"),
        )
        return windlass / min(peers) if windlass is not None and peers and min(peers) else None

    return ratio


SERVER_TARGETS = (
    at_least("drain at least the fastest peer's", 1, _to_fastest("drain")),
    at_least(
        "drain at least 1.8x pgqueuer's", 1.8, lambda result: result.ratio("drain", "pgqueuer")
    ),
    at_least(
        "drain at least 30x procrastinate's",
        30,
        lambda result: result.ratio("drain", "procrastinate"),
    ),
    at_least("drain by two at least the fastest peer's", 1, _to_fastest("pair")),
    at_least("bulk at least 1.5x the fastest peer's", 1.5, _to_fastest("bulk")),
    at_least(
        "100 at a time at least 8x the fastest one by one on PostgreSQL",
        8,
        _to_fastest("concurrent", "single", "postgresql"),
    ),
    at_least(
        "one by one at least 0.6x a bare INSERT", 0.6, lambda result: result.ratio("single", BARE)
    ),
    at_most("latency p50 at most the best on PostgreSQL", 1, _to_lowest("latency_p50")),
    at_most("latency p99 at most the best on PostgreSQL", 1, _to_lowest("latency_p99")),
    at_most(
        "idle worker at most the best on PostgreSQL and 0.1 %", 0.1, _above_lowest("idle"), "%"
    ),
    Target(
        "worker under 100 MB (RSS)",
        "MB",
        lambda result: result.windlass_median("memory_rss"),
        lambda size: size < MAX_SERVER_WORKER_MB,
    ),
)
