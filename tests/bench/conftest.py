"""Fixtures: the bench with the sides of `tests/bench/sides`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from windlass.bench.bench_run import measure
from windlass.bench.plan import Plan
from windlass.bench.results import Result

ROOT = Path(__file__).parents[2]
Run: TypeAlias = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Measure these sides of `tests/bench/sides`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def measured(plan: Plan, *sides: str) -> Result:
        modules = {name: f"tests.bench.sides.{name}" for name in sides}
        return measure(plan, tmp_path, lambda *_: None, modules)

    return measured
