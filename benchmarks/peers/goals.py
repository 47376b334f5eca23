"""Targets of Windlass on PostgreSQL, as ratios in one run."""

from __future__ import annotations

from collections.abc import Callable

from windlass.bench.results import Goal, Result, at_least, at_most

BARE = "bare"


def _others(result: Result, key: str, *, server: str | None = None) -> list[float]:
    """The medians of the peers: all of them, or those on this kind of server."""
    return [
        median
        for name, side in result.sides.items()
        if name not in {"windlass", BARE} and server in {None, side.server}
        if (median := side.median(key)) is not None
    ]


def _to_fastest(
    key: str, theirs: str = "", server: str | None = None
) -> Callable[[Result], float | None]:
    """Our figure as a multiple of the highest among the peers, of this figure or of another."""

    def ratio(result: Result) -> float | None:
        ours, others = result.own(key), _others(result, theirs or key, server=server)
        return ours / max(others) if ours is not None and others else None

    return ratio


def _above_lowest(key: str) -> Callable[[Result], float | None]:
    """How far our figure is above the lowest among the peers on PostgreSQL."""

    def difference(result: Result) -> float | None:
        ours, others = result.own(key), _others(result, key, server="postgresql")
        return ours - min(others) if ours is not None and others else None

    return difference


def _to_lowest(key: str) -> Callable[[Result], float | None]:
    """Our figure as a multiple of the lowest among the peers on PostgreSQL."""

    def ratio(result: Result) -> float | None:
        ours, others = result.own(key), _others(result, key, server="postgresql")
        return ours / min(others) if ours is not None and others and min(others) else None

    return ratio


GOALS = (
    at_least("drain at least the fastest peer's", 1, _to_fastest("drain")),
    at_least("drain at least 1.8x pgqueuer's", 1.8, lambda it: it.ratio("drain", "pgqueuer")),
    at_least(
        "drain at least 30x procrastinate's", 30, lambda it: it.ratio("drain", "procrastinate")
    ),
    at_least("drain by two at least the fastest peer's", 1, _to_fastest("pair")),
    at_least("bulk at least 1.5x the fastest peer's", 1.5, _to_fastest("bulk")),
    at_least(
        "100 at a time at least 8x the fastest one by one on PostgreSQL",
        8,
        _to_fastest("together", "single", "postgresql"),
    ),
    at_least("one by one at least 0.6x a bare INSERT", 0.6, lambda it: it.ratio("single", BARE)),
    at_most("latency p50 at most the best on PostgreSQL", 1, _to_lowest("latency_p50")),
    at_most("latency p99 at most the best on PostgreSQL", 1, _to_lowest("latency_p99")),
    at_most(
        "idle worker at most the best on PostgreSQL and 0.1 %", 0.1, _above_lowest("idle"), "%"
    ),
    Goal("worker under 100 MB (RSS)", "MB", lambda it: it.own("memory_rss"), lambda it: it < 100),
)
