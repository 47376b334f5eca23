"""Attempts of a job: past ones from its log, the current one from its row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windlass.core.clock import Instant
from windlass.core.event import ATTEMPT, LogRow
from windlass.core.job.failure import Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, past or current."""

    number: int
    fence: int
    worker: str | None
    queued_at: Instant
    started_at: Instant
    ended_at: Instant | None = None
    outcome: Trigger | None = None
    error: Failure | None = None
    delay: float | None = None
    percent: int = 0
    stage: str | None = None


def attempts_of(row: JobRow, log: Iterable[LogRow]) -> list[Attempt]:
    """Return all attempts, oldest first: past ones from the log, the current one from the row."""
    found = [
        Attempt(
            number=log_row.attempt,
            fence=log_row.fence,
            worker=log_row.data["worker"],
            queued_at=log_row.data["queued_at"],
            started_at=log_row.data["started_at"],
            ended_at=log_row.at,
            outcome=Trigger(log_row.data["outcome"]),
            error=Failure.of(log_row.data["error"], log_row.body)
            if log_row.data["error"]
            else None,
            delay=log_row.data["delay"],
            percent=log_row.data["percent"],
            stage=log_row.data["stage"],
        )
        for log_row in log
        if log_row.type == ATTEMPT
    ]
    if row.started_seq and row.queued_at is not None and row.started_at is not None:
        found.append(
            Attempt(
                number=row.attempt,
                fence=row.fence,
                worker=row.worker,
                queued_at=row.queued_at,
                started_at=row.started_at,
                ended_at=row.ended_at,
                outcome=row.trigger if row.final else None,
                error=row.error if row.final and _of_this_attempt(row) else None,
                percent=row.percent,
                stage=row.stage,
            )
        )
    return found


def _of_this_attempt(row: JobRow) -> bool:
    """Whether the error in the row is that of the current attempt, not of an earlier one."""
    return row.error is not None and row.error.attempt == row.attempt
