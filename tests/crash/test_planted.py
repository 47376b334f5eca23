"""The storms have teeth: a worker with a planted mistake does not come through."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.chaos.storms import STORMS, Plan, run

BURNED = "(innocent) ended failed"


@pytest.mark.parametrize(
    ("storm", "mistake", "said"),
    [
        ("term", "crash.planted:release_burns_an_attempt", "its task raises none"),
        ("term", "crash.planted:rescue_does_not_wait_for_the_lease", "before its lease ran out"),
        ("cancel", "crash.planted:success_overrules_a_cancel", "was answered running; it ended"),
        ("kill", "teeth.settling:a_job_is_settled_before_its_task_has_run", "did not end once in"),
        ("killer", "teeth.tasks:a_suspect_runs_beside_its_neighbours", BURNED),
    ],
)
def test_the_mistake_is_seen(tmp_path: Path, storm: str, mistake: str, said: str) -> None:
    jobs = 150 if storm == "term" else 40  # there must be some left when a worker is replaced
    calm = 30.0 if said == BURNED else 1.0  # until the innocent have died three times with it
    plan = Plan(jobs=jobs, seconds=10, seed=11, workers=3, calm=calm, plant=f"tests.{mistake}")
    violations = run(STORMS[storm], plan, tmp_path / storm).violations
    assert any(said in violation for violation in violations), violations
