"""From rounds to figures: medians, ratios, and the targets that Windlass has set itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from windlass.bench.peers import OURS
from windlass.bench.plan import Plan
from windlass.bench.rounds import Round


@dataclass(frozen=True, slots=True)
class Figure:
    key: str
    label: str
    unit: str
    digits: int = 0


FIGURES = (
    Figure("single", "enqueue one by one", "/s"),
    Figure("bulk", "enqueue in bulk", "/s"),
    Figure("drain", "drain, one worker", "/s"),
    Figure("latency_p50", "start latency p50", "ms", 2),
    Figure("latency_p99", "start latency p99", "ms", 2),
    Figure("idle", "idle worker", "% core", 2),
    Figure("memory_rss", "worker memory, RSS", "MB"),
    Figure("memory_pss", "worker memory, PSS", "MB"),
)


@dataclass(slots=True)
class SideResult:
    version: str | None
    durability: str
    bulk: str | None
    rounds: list[Round] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        return [each.figures[key] for each in self.rounds if key in each.figures]

    def median(self, key: str) -> float | None:
        values = self.values(key)
        return statistics.median(values) if values else None

    @property
    def exactly_once(self) -> bool:
        """Whether every round that came to an end ran each of its jobs once."""
        checks = [each.check for each in self.rounds if each.check is not None]
        return bool(checks) and all(check.exactly_once for check in checks)

    @property
    def problems(self) -> list[str]:
        found = [each.error for each in self.rounds if each.error is not None]
        checks = [each.check for each in self.rounds if each.check is not None]
        return found + [str(check) for check in checks if not check.exactly_once]

    def to_json(self) -> dict[str, Any]:
        figures = {
            figure.key: {"unit": figure.unit, "median": self.median(figure.key), "rounds": values}
            for figure in FIGURES
            if (values := self.values(figure.key))
        }
        return {
            "version": self.version,
            "durability": self.durability,
            "bulk": self.bulk,
            "exactly_once": self.exactly_once,
            "figures": figures,
            "rounds": [asdict(each) for each in self.rounds],
        }


@dataclass(slots=True)
class Result:
    """One run. `skipped` says which peers were left out, and why."""

    plan: Plan
    machine: Mapping[str, Any]
    sides: dict[str, SideResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def own(self, key: str) -> float | None:
        return self.sides[OURS].median(key) if OURS in self.sides else None

    def ratio(self, key: str, peer: str) -> float | None:
        """Our median as a multiple of the peer's."""
        ours = self.own(key)
        theirs = self.sides[peer].median(key) if peer in self.sides else None
        return ours / theirs if ours is not None and theirs else None

    def to_json(self) -> dict[str, Any]:
        peers = [name for name in self.sides if name != OURS]
        ratios = {
            figure.key: {peer: ratio for peer in peers if (ratio := self.ratio(figure.key, peer))}
            for figure in FIGURES
        }
        return {
            "machine": dict(self.machine),
            "settings": self.plan.settings(),
            "sides": {name: side.to_json() for name, side in self.sides.items()},
            "skipped": self.skipped,
            "ratios": {key: found for key, found in ratios.items() if found},
            "targets": [asdict(target) for target in targets(self)],
        }


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is None, and so is `reached`, where it was not measured."""

    text: str
    value: float | None
    unit: str
    reached: bool | None


_TARGETS: tuple[tuple[str, str, str | None, str, Callable[[float], bool]], ...] = (
    ("drain at least 8x huey's", "drain", "huey", "x", lambda it: it >= 8),  # noqa: PLR2004
    ("bulk at least 1.5x litequeue's", "bulk", "litequeue", "x", lambda it: it >= 1.5),  # noqa: PLR2004
    ("latency p50 at most litequeue's", "latency_p50", "litequeue", "x", lambda it: it <= 1),
    ("idle worker at most 1 % of a core", "idle", None, "%", lambda it: it <= 1),
    ("worker under 80 MB (RSS)", "memory_rss", None, "MB", lambda it: it < 80),  # noqa: PLR2004
)


def targets(result: Result) -> list[Target]:
    """Each is about our own figure, or about its ratio to a peer's."""
    found = []
    for text, key, peer, unit, reached in _TARGETS:
        value = result.own(key) if peer is None else result.ratio(key, peer)
        found.append(Target(text, value, unit, None if value is None else reached(value)))
    return found
