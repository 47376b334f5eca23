"""Progress of a job: a percentage that never decreases, and its stages and phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from windlass.core.errors import InvalidArgumentError

COMPLETE = 100


def clamp(percent: float) -> int:
    """Return a percentage as an integer from 0 to 100."""
    if percent != percent:  # noqa: PLR0124 - NaN counts as no progress
        return 0
    return int(min(max(percent, 0), COMPLETE))


def advance(current: int, reported: float | None) -> int:
    """Return the new percent, never below the current one."""
    return current if reported is None else max(current, clamp(reported))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Coarse name shown to users, and the percent range that it spans (None: no range)."""

    name: str
    span: tuple[int, int] | None = None


PROCESSING = Phase(name="processing")


@dataclass(frozen=True, slots=True)
class StageMap:
    """Maps stages to phases. Stage names are case-insensitive."""

    phases: Mapping[str, Phase] = field(default_factory=dict)

    @staticmethod
    def of(table: Mapping[str, tuple[str, tuple[int, int] | None]]) -> StageMap:
        """Build from {stage: (phase, (low, high))}; raise an error if a range is invalid."""
        phases: dict[str, Phase] = {}
        for stage, (name, span) in table.items():
            if span is not None and not 0 <= span[0] <= span[1] <= COMPLETE:
                raise InvalidArgumentError(
                    f"stage {stage!r} spans {span}; expected 0 <= low <= high <= 100"
                )
            phases[stage.casefold()] = Phase(name=name, span=span)
        return StageMap(MappingProxyType(phases))

    def phase(self, stage: str) -> Phase:
        """Return the phase of a stage; `processing` for an unknown one."""
        return self.phases.get(stage.casefold(), PROCESSING)

    def percent(self, stage: str, within: float) -> int | None:
        """Return the job's percent at `within` percent of a stage; None if it has no span."""
        span = self.phase(stage).span
        if span is None:
            return None
        low, high = span
        return clamp(low + (high - low) * clamp(within) / COMPLETE)


_DEFAULT = {
    ("plan", (0, 15)): "initialization queued script planning brief plan",
    ("tts", (15, 35)): "tts audio voice",
    ("visuals", (35, 65)): "visuals images assets",
    ("compose", (65, 85)): "composition timeline compose",
    ("render", (85, 100)): "rendering render encode",
    ("complete", (100, 100)): "complete done",
}
DEFAULT_STAGES = StageMap.of(
    {stage: phase for phase, stages in _DEFAULT.items() for stage in stages.split()}
)


def eta(elapsed: float, start_percent: int, percent: int) -> int | None:
    """Estimate the remaining seconds at the speed of this attempt; None without progress.

    `start_percent` is the percent at the start of the attempt, `elapsed` the seconds since.
    """
    done = percent - start_percent
    if done <= 0 or elapsed <= 0:
        return None
    return round(elapsed * (COMPLETE - percent) / done)
