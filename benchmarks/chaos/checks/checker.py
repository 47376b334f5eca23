"""Runs all checks of a storm and returns the violations. Imports no Windlass code."""

from __future__ import annotations

from benchmarks.chaos.checks import flow_checks, job_checks, limit_checks
from benchmarks.chaos.checks.evidence import Evidence
from benchmarks.chaos.streams import transcript_checks

CHECKS = (
    *job_checks.CHECKS,
    *flow_checks.CHECKS,
    *limit_checks.CHECKS,
    *transcript_checks.CHECKS,
)


def check(evidence: Evidence) -> list[str]:
    """Return all violations; an empty list means a correct storm."""
    return [problem for check_one in CHECKS for problem in check_one(evidence)]
