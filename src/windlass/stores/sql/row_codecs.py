"""Codecs of rows that both SQL stores share: log rows and failed jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windlass.core.event import LogRow
from windlass.core.job.failure import FailedJob, Failure, Failures


def log_row(row: Sequence[Any]) -> LogRow:
    seq, at, type_, attempt, fence, record_n, data, body = row
    return LogRow(
        seq=seq,
        at=at,
        type=type_,
        attempt=attempt,
        fence=fence,
        n=record_n,
        data=json.loads(data) if data is not None else {},
        body=body,
    )


def log_insertion(n: int, row: LogRow) -> tuple[Any, ...]:
    data = json.dumps(dict(row.data), separators=(",", ":")) if row.data else None
    return (
        n, row.seq, row.at, row.type, row.attempt, row.fence, row.n, data, row.body
    )  # fmt: skip


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
