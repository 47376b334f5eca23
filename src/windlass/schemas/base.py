"""Base class of schemas, and conversions of values that they share."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from windlass.core.clock import Instant, to_datetime
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import CodecError


class JsonModel(BaseModel):
    """Base of schemas: camelCase JSON, in which no field is absent."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        json_schema_serialization_defaults_required=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, as in the response of the HTTP API."""
        return self.model_dump(mode="json", by_alias=True)


def time(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)


def iso(instant: Instant) -> str:
    return to_datetime(instant).isoformat().replace("+00:00", "Z")


def decode_value(codec: Codec, data: bytes | None, purpose: Purpose) -> tuple[Any, bool]:
    """Return the value, and whether it is sealed: cannot be decoded here."""
    if data is None:
        return None, False
    try:
        return codec.decode(data, purpose), False
    except (CodecError, UnicodeDecodeError):
        return None, True


def shared_fields(kind: type[BaseModel], source: Any) -> dict[str, Any]:
    """Return the fields that a model and a value share by name, with instants as times."""
    plain, instants = _shared_names(kind, cast("Hashable", type(source)))
    values = {name: getattr(source, name) for name in plain}
    for name in instants:
        value = getattr(source, name)
        values[name] = time(value) if isinstance(value, int) else value
    return values


@cache
def _shared_names(kind: type[BaseModel], source: type[Any]) -> tuple[list[str], list[str]]:
    """Return the shared names: those of plain values, and those of instants."""
    names = [name for name in kind.model_fields if hasattr(source, name)]
    instants = [name for name in names if name.endswith("_at") or name == "at"]
    return [name for name in names if name not in instants], instants
