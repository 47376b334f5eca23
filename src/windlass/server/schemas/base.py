"""Base class of request schemas, and the fields that they share."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from windlass.core.duration import to_seconds
from windlass.core.errors import InvalidArgumentError
from windlass.server.problem_details import invalid_field

Duration = float | str  # seconds, or text like "5m"


class RequestModel(BaseModel):
    """Base of request models; unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


def parse_duration(field: str, value: Duration) -> float:
    try:
        return to_seconds(value, field)
    except InvalidArgumentError as error:
        raise invalid_field(field, str(error)) from None
