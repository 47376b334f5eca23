"""Progress: a whole percentage that only rises, and the stages and phases it moves through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from windlass.core.errors import InvalidArgumentError

COMPLETE = 100


def clamp(percent: float) -> int:
    if percent != percent:  # noqa: PLR0124 - not a number: nothing was gained
        return 0
    return int(min(max(percent, 0), COMPLETE))


def advance(current: int, reported: float | None) -> int:
    """The new percent: never below the current one, whatever was reported."""
    return current if reported is None else max(current, clamp(reported))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The coarse name shown to people, and the part of the whole it spans (None: no part)."""

    name: str
    span: tuple[int, int] | None = None


PROCESSING = Phase(name="processing")


@dataclass(frozen=True, slots=True)
class StageMap:
    """Which phase each stage belongs to. Stage names are compared without regard to case."""

    phases: Mapping[str, Phase] = field(default_factory=dict)

    @staticmethod
    def of(table: Mapping[str, tuple[str, tuple[int, int] | None]]) -> StageMap:
        """From {stage: (phase, (low, high))}, checked."""
        phases: dict[str, Phase] = {}
        for stage, (name, span) in table.items():
            if span is not None and not 0 <= span[0] <= span[1] <= COMPLETE:
                raise InvalidArgumentError(
                    f"stage {stage!r} spans {span}; expected 0 <= low <= high <= 100"
                )
            phases[stage.casefold()] = Phase(name=name, span=span)
        return StageMap(MappingProxyType(phases))

    def phase(self, stage: str) -> Phase:
        """What people are shown for a stage; `processing` for one that is unknown."""
        return self.phases.get(stage.casefold(), PROCESSING)

    def percent(self, stage: str, within: float) -> int | None:
        """The job's percent for `within` percent of a stage, or None when the stage has no span."""
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


def eta(elapsed: float, begun_at: int, percent: int) -> int | None:
    """Seconds to go if the rest takes as long as what this attempt did; None if that says nothing.

    `begun_at` is the percent the attempt started from, `elapsed` the seconds since.
    """
    done = percent - begun_at
    if done <= 0 or elapsed <= 0:
        return None
    return round(elapsed * (COMPLETE - percent) / done)
