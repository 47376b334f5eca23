"""The storms have teeth: a worker with a planted mistake does not come through."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.chaos.storms import STORMS, Plan, run


@pytest.mark.parametrize(
    ("storm", "mistake", "said"),
    [
        ("term", "release_burns_an_attempt", "its task raises none"),
        ("term", "rescue_does_not_wait_for_the_lease", "was taken before its lease ran out"),
        ("cancel", "success_overrules_a_cancel", "was answered running; it ended succeeded"),
    ],
)
def test_the_mistake_is_seen(tmp_path: Path, storm: str, mistake: str, said: str) -> None:
    plant = f"tests.crash.planted:{mistake}"
    plan = Plan(jobs=40, seconds=2, seed=11, workers=3, calm=1, plant=plant)
    violations = run(STORMS[storm], plan, tmp_path / storm).violations
    assert any(said in violation for violation in violations), violations
