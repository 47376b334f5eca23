"""Results of a comparison: medians per system, and ratios of Windlass to its peers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.peers import WINDLASS
from benchmarks.peers.plan import Plan
from benchmarks.peers.queue_adapter import EACH_COMMIT
from benchmarks.peers.round_result import RoundResult
from benchmarks.peers.targets import Target, TargetResult


@dataclass(frozen=True, slots=True)
class Figure:
    key: str
    label: str
    unit: str
    digits: int = 0


FIGURES = (
    Figure("single", "enqueue one by one", "/s"),
    Figure("concurrent", "100 enqueues at a time", "/s"),
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
class SystemResult:
    """Rounds of one measured system. `synced` says when a commit reaches the disk."""

    version: str | None
    durability: str
    bulk: str | None
    server: str | None = None
    rounds: list[RoundResult] = field(default_factory=list)
    synced: str = EACH_COMMIT

    def values(self, key: str) -> list[float]:
        return [round_.figures[key] for round_ in self.rounds if key in round_.figures]

    def median(self, key: str) -> float | None:
        values = self.values(key)
        return statistics.median(values) if values else None

    @property
    def exactly_once(self) -> bool:
        """Whether every completed round ran each of its jobs once."""
        checks = [round_.check for round_ in self.rounds if round_.check is not None]
        return bool(checks) and all(check.exactly_once for check in checks)

    @property
    def problems(self) -> list[str]:
        found = [round_.error for round_ in self.rounds if round_.error is not None]
        checks = [round_.check for round_ in self.rounds if round_.check is not None]
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
            "rounds": [asdict(round_) for round_ in self.rounds],
        }


@dataclass(slots=True)
class ComparisonResult:
    """Results of one comparison. `skipped` maps unmeasured systems to the reason."""

    plan: Plan
    machine: Mapping[str, Any]
    targets: Sequence[Target] = ()
    systems: dict[str, SystemResult] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def windlass_median(self, key: str) -> float | None:
        return self.systems[WINDLASS].median(key) if WINDLASS in self.systems else None

    def ratio(self, key: str, peer: str) -> float | None:
        """Return the median of Windlass divided by that of the peer."""
        windlass = self.windlass_median(key)
        other = self.systems[peer].median(key) if peer in self.systems else None
        return windlass / other if windlass is not None and other else None

    def to_json(self) -> dict[str, Any]:
        peers = [name for name in self.systems if name != WINDLASS]
        ratios = {
            figure.key: {peer: ratio for peer in peers if (ratio := self.ratio(figure.key, peer))}
            for figure in FIGURES
        }
        return {
            "machine": dict(self.machine),
            "settings": self.plan.settings(),
            "systems": {name: system.to_json() for name, system in self.systems.items()},
            "skipped": self.skipped,
            "ratios": {key: peers for key, peers in ratios.items() if peers},
            "targets": [asdict(target) for target in self.target_results()],
        }

    def target_results(self) -> list[TargetResult]:
        return [target.evaluate(self) for target in self.targets]
