"""The runs of a job: the past ones from its log, the current one from its row."""

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
    """One run of a job, past or present."""

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
    """Every attempt, oldest first: the past ones from the log, the current one from the row."""
    found = [
        Attempt(
            number=line.attempt,
            fence=line.fence,
            worker=line.facts["worker"],
            queued_at=line.facts["queued_at"],
            started_at=line.facts["started_at"],
            ended_at=line.at,
            outcome=Trigger(line.facts["outcome"]),
            error=Failure.of(line.facts["error"], line.body) if line.facts["error"] else None,
            delay=line.facts["delay"],
            percent=line.facts["percent"],
            stage=line.facts["stage"],
        )
        for line in log
        if line.type == ATTEMPT
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
    """The row keeps the last error there was; it may be an earlier attempt's."""
    return row.error is not None and row.error.attempt == row.attempt
