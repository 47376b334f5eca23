"""Fixtures: comparisons of the adapters in `tests/benchmarks/adapters`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from benchmarks.peers.comparison import compare
from benchmarks.peers.plan import Plan
from benchmarks.peers.results import ComparisonResult

Run: TypeAlias = Callable[..., ComparisonResult]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Compare these adapters of `tests/benchmarks/adapters`."""

    def compare_adapters(plan: Plan, *names: str) -> ComparisonResult:
        modules = {name: f"tests.benchmarks.adapters.{name}" for name in names}
        return compare(plan, tmp_path, lambda *_: None, modules)

    return compare_adapters
