"""Schemas of the results of a batch of jobs to enqueue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from windlass.schemas.base import JsonModel
from windlass.schemas.jobs import JobSummary
from windlass.server.problem_details import Problem


class EnqueueBatchResult(JsonModel):
    """`status`: created, duplicate, conflict or refused; the last two have a problem and no job."""

    status: Literal["created", "duplicate", "conflict", "refused"]
    job: JobSummary | None = None
    problem: Problem | None = None


class EnqueueBatchResults(JsonModel):
    """One result for each job of the request, in the same order."""

    results: Sequence[EnqueueBatchResult]
