"""Base classes of request and response schemas, and fields that they share."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from windlass.core.clock import Instant, to_datetime
from windlass.core.duration import to_seconds
from windlass.core.errors import InvalidArgumentError
from windlass.server.problem_details import invalid_field

Duration = float | str  # seconds, or text like "5m"


class RequestModel(BaseModel):
    """Base of request models; unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class ResponseModel(BaseModel):
    """Base of response models: camelCase JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


def time(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)


def shared_fields(kind: type[BaseModel], source: Any) -> dict[str, Any]:
    """Return the fields that a model and a value share by name, with instants as times."""
    plain, instants = _shared_names(kind, cast("Hashable", type(source)))
    values = {name: getattr(source, name) for name in plain}
    for name in instants:
        value = getattr(source, name)
        values[name] = time(value) if isinstance(value, int) else value
    return values


def parse_duration(field: str, value: Duration) -> float:
    try:
        return to_seconds(value, field)
    except InvalidArgumentError as error:
        raise invalid_field(field, str(error)) from None


@cache
def _shared_names(kind: type[BaseModel], source: type[Any]) -> tuple[list[str], list[str]]:
    """Return the shared names: those of plain values, and those of instants."""
    names = [name for name in kind.model_fields if hasattr(source, name)]
    instants = [name for name in names if name.endswith("_at")]
    return [name for name in names if name not in instants], instants
