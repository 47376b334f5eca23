"""Results of a run: medians, ratios to the peers, and the targets of Windlass."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from windlass.bench.peers import OURS
from windlass.bench.plan import Plan
from windlass.bench.round import Round
from windlass.bench.side import EACH_COMMIT


@dataclass(frozen=True, slots=True)
class Figure:
    key: str
    label: str
    unit: str
    digits: int = 0


FIGURES = (
    Figure("single", "enqueue one by one", "/s"),
    Figure("together", "100 enqueues at a time", "/s"),
    Figure("bulk", "enqueue in bulk", "/s"),
    Figure("drain", "drain, one worker", "/s"),
    Figure("pair", "drain, two workers", "/s"),
    Figure("latency_p50", "start latency p50", "ms", 2),
    Figure("latency_p99", "start latency p99", "ms", 2),
    Figure("idle", "idle worker", "% core", 2),
    Figure("idle_server", "its server", "% core", 2),
    Figure("memory_rss", "worker memory, RSS", "MB"),
    Figure("memory_pss", "worker memory, PSS", "MB"),
)


@dataclass(slots=True)
class SideResult:
    version: str | None
    durability: str
    bulk: str | None
    server: str | None = None
    rounds: list[Round] = field(default_factory=list)
    synced: str = EACH_COMMIT

    def values(self, key: str) -> list[float]:
        return [each.figures[key] for each in self.rounds if key in each.figures]

    def median(self, key: str) -> float | None:
        values = self.values(key)
        return statistics.median(values) if values else None

    @property
    def exactly_once(self) -> bool:
        """Whether every completed round ran each of its jobs once."""
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
            "server": self.server,
            "synced": self.synced,
            "exactly_once": self.exactly_once,
            "figures": figures,
            "rounds": [asdict(each) for each in self.rounds],
        }


@dataclass(slots=True)
class Result:
    """Results of one run. `skipped` maps peers that were not measured to the reason."""

    plan: Plan
    machine: Mapping[str, Any]
    goals: Sequence[Goal] = ()
    sides: dict[str, SideResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def own(self, key: str) -> float | None:
        return self.sides[OURS].median(key) if OURS in self.sides else None

    def ratio(self, key: str, peer: str) -> float | None:
        """Return our median divided by the peer's."""
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
            "targets": [asdict(target) for target in self.targets()],
        }

    def targets(self) -> list[Target]:
        found = []
        for goal in self.goals:
            value = goal.value(self)
            reached = None if value is None else goal.reached(value)
            found.append(Target(goal.text, value, goal.unit, reached))
        return found


@dataclass(frozen=True, slots=True)
class Goal:
    """`value` reads the figure of the goal from a result, or None if it was not measured."""

    text: str
    unit: str
    value: Callable[[Result], float | None]
    reached: Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """`value` and `reached` are None if the figure was not measured."""

    text: str
    value: float | None
    unit: str
    reached: bool | None


def at_least(text: str, factor: float, value: Callable[[Result], float | None]) -> Goal:
    return Goal(text, "x", value, lambda it: it >= factor)


def at_most(
    text: str, limit: float, value: Callable[[Result], float | None], unit: str = "x"
) -> Goal:
    return Goal(text, unit, value, lambda it: it <= limit)


SQLITE = (
    at_least("drain at least 8x huey's", 8, lambda it: it.ratio("drain", "huey")),
    at_least("bulk at least 1.5x litequeue's", 1.5, lambda it: it.ratio("bulk", "litequeue")),
    at_most("latency p50 at most litequeue's", 1, lambda it: it.ratio("latency_p50", "litequeue")),
    at_most("idle worker at most 1 % of a core", 1, lambda it: it.own("idle"), "%"),
    Goal("worker under 80 MB (RSS)", "MB", lambda it: it.own("memory_rss"), lambda it: it < 80),  # noqa: PLR2004
)
