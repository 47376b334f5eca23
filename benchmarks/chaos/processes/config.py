"""Configuration of the processes of a storm: the jobs of its producers, and all settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMix:
    """Jobs that the producers enqueue: tasks by weight, durations, and the share to cancel."""

    tasks: dict[str, int]
    seconds: tuple[float, float] = (0.0, 0.05)
    cancels: float = 0.0
    pause: float = 0.0  # between two batches
    once: tuple[str, ...] = ()  # tasks with one job each, at random positions
    flow: bool = False  # instead of the above: a diamond, and a fan-out
    limits: dict[str, dict[str, float]] = field(default_factory=dict)  # set before the first job


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """Configuration of every process of a storm."""

    directory: Path
    url: str
    mix: TaskMix
    arguments: tuple[str, ...] = ()
    plant: str | None = None  # module:function that plants a bug, called first
    lost_calls: float = 0.0
    skew: float = 0.0
    sweep_interval: float = 1.0
    producers: int = 1
