"""Codec of failed jobs in SQL stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.job.failure import FailedJob, Failure, Failures


def failures_of(rows: Sequence[Any], limit: int, scope: tuple[str | None, str | None]) -> Failures:
    """Build the failures from rows of the query `failures`, which reads up to `limit` + 1 rows."""
    owner, team = scope
    jobs = [
        FailedJob(
            id=id_,
            task=task,
            queue=queue,
            ended_at=ended_at,
            error=None if error is None else Failure.decode(error, body),
        )
        for id_, task, queue, ended_at, error, body, job_owner, job_team in rows[:limit]
        if owner in {None, job_owner} and team in {None, job_team}
    ]
    return Failures(jobs, capped=len(rows) > limit)
