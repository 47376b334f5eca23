"""Fixtures: comparisons of the adapters in `tests/bench/adapters`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from windlass.bench.comparison import compare
from windlass.bench.plan import Plan
from windlass.bench.results import ComparisonResult

ROOT = Path(__file__).parents[2]
Run: TypeAlias = Callable[..., ComparisonResult]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Compare these adapters of `tests/bench/adapters`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def compare_adapters(plan: Plan, *names: str) -> ComparisonResult:
        modules = {name: f"tests.bench.adapters.{name}" for name in names}
        return compare(plan, tmp_path, lambda *_: None, modules)

    return compare_adapters
