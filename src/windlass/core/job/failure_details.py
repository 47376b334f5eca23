"""Explanations of failed jobs for users: what failed, why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.job.failure import (
    CRASHED,
    EXPIRED,
    PARENT_FAILED,
    TIMEOUT,
    UNKNOWN_TASK,
    ErrorKind,
    Failure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """Explanation of a failure for users: what failed, why, and what to do."""

    summary: str
    stage: str | None
    category: str
    advice: str


_ADVICE = {
    CRASHED: (
        "the worker process died while it ran",
        (
            "check for out-of-memory kills or a crashing native library; "
            "give the task more memory or fix its input, then retry the job"
        ),
    ),
    EXPIRED: (
        "it expired before its first start",
        "start more workers for its queue, or enqueue the job with a later expiry",
    ),
    TIMEOUT: (
        "it ran longer than its timeout",
        "raise the task's timeout, or split the work into steps, then resume the job",
    ),
    UNKNOWN_TASK: (
        "no worker has its task",
        "deploy a worker that has the task, or add the old name to aliases=, then retry the job",
    ),
    PARENT_FAILED: ("a job that it depends on failed", "fix the parent job, then retry the flow"),
    "children_failed": (
        "child jobs that it waited for did not succeed",
        "fix the jobs that the error names, then retry the job",
    ),
    "invalid_input": ("its arguments are invalid", "enqueue a job with corrected arguments"),
    "invalid_result": (
        "its return value cannot be stored",
        "return plain data, or store large data elsewhere and return its address; then retry",
    ),
    "missing_input": ("required input is missing", "restore the input, then retry the job"),
    "configuration": (
        "the worker is configured wrongly",
        "correct the setting, then retry the job",
    ),
    "authentication": (
        "an external system refused access",
        "renew the credentials, then retry the job",
    ),
    "quota_exceeded": ("a quota is exhausted", "raise the quota, then retry the job"),
    "insufficient_resources": (
        "this machine has too few resources",
        "use a larger worker, then retry the job",
    ),
    "constraint_violation": (
        "a constraint of the data is violated",
        "correct the data, then retry the job",
    ),
}
_BY_KIND = {
    ErrorKind.RETRYABLE: (
        "all attempts failed",
        "once the cause of the last error is fixed, retry the job",
    ),
    ErrorKind.TERMINAL: ("the error is not retryable", "fix its cause, then retry the job"),
}


def details(failure: Failure, *, task: str, stage: str | None) -> FailureDetails:
    """Explain the failure of a job."""
    category, advice = _ADVICE.get(failure.code, _BY_KIND[failure.kind])
    where = f" in step {failure.step!r}" if failure.step else ""
    return FailureDetails(
        summary=f"{task} failed with {failure.code}{where} in attempt {failure.attempt}",
        stage=stage,
        category=category,
        advice=advice,
    )
