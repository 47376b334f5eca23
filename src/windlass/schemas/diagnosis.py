"""Schema of a diagnosis: why a job is not running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from windlass.core.diagnosis import Diagnosis, ReasonCode
from windlass.core.job.state import State
from windlass.schemas.base import JsonModel, shared_fields


class ReasonView(JsonModel):
    """One reason; `at` is the time that the text names."""

    code: ReasonCode
    text: str
    at: datetime | None
    advice: str | None


class DiagnosisView(JsonModel):
    """Reasons why a job is not running, most important first."""

    id: UUID
    state: State
    reasons: Sequence[ReasonView]

    @staticmethod
    def of(diagnosis: Diagnosis) -> DiagnosisView:
        reasons = [ReasonView(**shared_fields(ReasonView, one)) for one in diagnosis.reasons]
        return DiagnosisView(id=diagnosis.job_id, state=diagnosis.state, reasons=reasons)
