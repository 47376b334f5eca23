"""Values of the hot path: frozen for the type checker, cheap at run time.

A frozen dataclass sets each field by a call; a job's row has 55 of them, and making one took 8.9 µs
frozen against 0.6 µs like this (measured 2026-11, docs/design/decisions/0002). mypy refuses every
assignment to such a value and every positional construction, in this project and in its users'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def value(cls: type[T]) -> type[T]:
    return dataclass(slots=True)(cls)


@dataclass_transform(frozen_default=True)
def pair(cls: type[T]) -> type[T]:
    """The same for values so small that their fields need no names when they are made."""
    return dataclass(slots=True)(cls)
