"""Schemas of the results of actions on jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast
from uuid import UUID

from windlass.core.job.state import State
from windlass.schemas.base import JsonModel

CancelStatus = Literal["requested", "canceled", "succeeded", "failed"]


class JobStateView(JsonModel):
    """The state of a job after an action."""

    id: UUID
    state: State


class CancelView(JsonModel):
    """`status`: canceled, requested (it will end as canceled), or the final state it had before."""

    id: UUID
    status: CancelStatus
    cleanup_scheduled: bool

    @staticmethod
    def of(job_id: UUID, state: State) -> CancelView:
        """Describe the result of a cancel; `state` is that of the job after it."""
        requested = not state.final
        status = "requested" if requested else state.value
        return CancelView(
            id=job_id, status=cast("CancelStatus", status), cleanup_scheduled=requested
        )


class RefusedView(JsonModel):
    """A job on which an action was refused; `code` is that of the error."""

    id: UUID
    code: str
    detail: str


class BulkActionView(JsonModel):
    """Result of a bulk action; `refused` has the first 20 rejected jobs, `cursor` leads on."""

    matched: int
    done: int
    refused: Sequence[RefusedView]
    cursor: str | None
