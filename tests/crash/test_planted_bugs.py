"""Storms detect planted bugs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.chaos.processes.config import TaskMix
from benchmarks.chaos.storm import Plan
from benchmarks.chaos.storm_catalog import STORMS
from benchmarks.chaos.storm_run import run

pytestmark = pytest.mark.slow
TASK = "task:benchmarks.chaos.tasks.rated"


@pytest.mark.parametrize(
    ("storm", "bug", "message"),
    [
        ("term", "crash.planted_bugs:release_counts_as_a_failure", "its task raised none"),
        (
            "term",
            "crash.planted_bugs:rescue_does_not_wait_for_the_lease",
            "before its lease expired",
        ),
        (
            "cancel",
            "crash.planted_bugs:success_overrides_a_cancel",
            "returned running; the job ended",
        ),
        (
            "flow",
            "planted_bugs.bugs.flows:the_first_parent_queues_its_child",
            "did not wait for",
        ),
        ("limit", "planted_bugs.bugs.limits:a_fast_path_success_admits_no_job", "is still created"),
        (
            "kill",
            "planted_bugs.bugs.settle:a_job_is_settled_before_its_task_has_run",
            "did not end once in",
        ),
    ],
)
def test_the_bug_is_found(tmp_path: Path, storm: str, bug: str, message: str) -> None:
    # Enough jobs that some are left when a worker is replaced, that parents end in several writes,
    # and that a limit is reached.
    jobs = {"term": 150, "flow": 400, "limit": 100}.get(storm, 40)
    plan = Plan(jobs=jobs, seconds=20, seed=11, workers=3, quiet_timeout=10.0, plant=f"tests.{bug}")
    violations = run(STORMS[storm], plan, tmp_path / storm).violations
    assert any(message in violation for violation in violations), violations


def test_a_suspect_that_runs_beside_other_jobs_is_detected(tmp_path: Path) -> None:
    """Enough killers that a plain job dies with three of them on any machine."""
    storm = replace(
        STORMS["killer"], mix=TaskMix(tasks={"plain": 1, "killer": 1}, seconds=(0.1, 0.3))
    )
    bug = "tests.planted_bugs.bugs.tasks:a_suspect_runs_beside_other_jobs"
    plan = Plan(jobs=60, seconds=10, seed=11, workers=2, slots=10, quiet_timeout=30.0, plant=bug)
    violations = run(storm, plan, tmp_path / "killer").violations
    assert any("(plain) ended failed" in violation for violation in violations), violations


def test_a_rate_that_forgets_ended_jobs_is_detected(tmp_path: Path) -> None:
    """The period is so long that even a slow machine starts one job too many."""
    rate: dict[str, float] = {"starts": 4, "period": 60}
    storm = replace(
        STORMS["limit"],
        mix=TaskMix(tasks={"rated": 1}, limits={TASK: rate}),
        inject=None,
        producers=1,
    )
    bug = "tests.planted_bugs.bugs.limits:a_rate_forgets_ended_jobs"
    plan = Plan(jobs=20, seconds=30, seed=11, workers=2, quiet_timeout=10.0, plant=bug)
    violations = run(storm, plan, tmp_path / "limit").violations
    assert any("starts within 60 s; the limit is 4" in violation for violation in violations), (
        violations
    )
