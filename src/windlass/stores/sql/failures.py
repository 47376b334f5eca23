"""Failed jobs, from the columns that SQL stores keep of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.core.job.failure import FailedJob, Failure, Failures


def failures_of(found: Sequence[Any], limit: int, whose: tuple[str | None, str | None]) -> Failures:
    """From rows of the query `failures`, of which one more than `limit` was asked for."""
    owner, team = whose
    jobs = [
        FailedJob(
            id=id_,
            task=task,
            queue=queue,
            ended_at=ended_at,
            error=None if error is None else Failure.decode(error, body),
        )
        for id_, task, queue, ended_at, error, body, its_owner, its_team in found[:limit]
        if owner in {None, its_owner} and team in {None, its_team}
    ]
    return Failures(jobs, capped=len(found) > limit)
