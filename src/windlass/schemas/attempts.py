"""Schemas of attempts and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass.core.codec import Codec, Purpose
from windlass.core.job.attempt import Attempt
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.failure_details import details
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.schemas.base import JsonModel, decode_value, shared_fields, time


class ErrorView(JsonModel):
    """The error of an attempt."""

    code: str
    type: str | None = None
    message: str | None = None
    error_type: ErrorKind
    step: str | None
    attempt: int
    at: datetime | None
    traceback: str | None = None

    @staticmethod
    def of(failure: Failure | None, codec: Codec) -> ErrorView | None:
        if failure is None:
            return None
        decoded, _ = decode_value(codec, failure.body, Purpose.ERROR)
        body = decoded if isinstance(decoded, dict) else {}
        return ErrorView(
            code=failure.code,
            type=body.get("type"),
            message=body.get("message") or failure.code,
            error_type=failure.kind,
            step=failure.step,
            attempt=failure.attempt,
            at=time(failure.at),
            traceback=body.get("traceback"),
        )


class FailureView(JsonModel):
    """Failure details for people: what failed, where, the kind of error, and advice."""

    summary: str
    stage: str | None
    category: str
    advice: str

    @staticmethod
    def of(row: JobRow) -> FailureView | None:
        if row.state is not State.FAILED or row.error is None:
            return None
        found = details(row.error, task=row.task, stage=row.stage)
        return FailureView(**shared_fields(FailureView, found))


class AttemptView(JsonModel):
    """An attempt of a job. `delay` is the time until the next attempt, in seconds."""

    number: int
    worker: str | None
    queued_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    error: ErrorView | None
    delay: float | None
    percent: int
    stage: str | None

    @staticmethod
    def from_attempt(attempt: Attempt, codec: Codec) -> AttemptView:
        values = shared_fields(AttemptView, attempt)
        return AttemptView(**values | {"error": ErrorView.of(attempt.error, codec)})


class Attempts(JsonModel):
    """The attempts of a job, oldest first."""

    attempts: Sequence[AttemptView]

    @staticmethod
    def of(attempts: Sequence[Attempt], codec: Codec) -> Attempts:
        return Attempts(attempts=[AttemptView.from_attempt(item, codec) for item in attempts])
