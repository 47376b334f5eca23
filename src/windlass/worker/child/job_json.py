"""JSON encoding of jobs between a worker and its child processes, field by field."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger

J = TypeVar("J", JobRow, NewJob)


def _decode_failure(data: dict[str, Any]) -> Failure:
    return Failure.of(data["fields"], None if data["body"] is None else b64decode(data["body"]))


def _encode(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case bytes():
            return b64encode(value).decode()
        case Policy():
            return value.encode()
        case Mapping():
            return dict(value)
        case tuple():
            return [_encode(item) for item in value]
        case Failure():
            return {"fields": value.fields(), "body": _encode(value.body)}
    return value


_DECODE: dict[Any, Callable[[Any], Any]] = {
    UUID: UUID,
    bytes: b64decode,
    Policy: Policy.decode,
    Failure: _decode_failure,
    State: State,
    Trigger: Trigger,
    OnParent: OnParent,
}


def to_json(job: JobRow | NewJob) -> dict[str, Any]:
    return {field.name: _encode(getattr(job, field.name)) for field in fields(job)}


def from_json(kind: type[J], data: dict[str, Any]) -> J:
    decode = _DECODERS[kind]
    return kind(
        **{
            name: decode[name](value) if name in decode and value is not None else value
            for name, value in data.items()
        }
    )


def _decoders(kind: type[JobRow | NewJob]) -> dict[str, Callable[[Any], Any]]:
    decoders: dict[str, Callable[[Any], Any]] = {}
    for name, hint in get_type_hints(kind).items():
        arguments = [arg for arg in get_args(hint) if arg is not type(None)]
        plain = arguments[0] if isinstance(hint, UnionType) else get_origin(hint) or hint
        if plain is tuple:
            decoders[name] = partial(_decode_tuple, _DECODE.get(arguments[0], arguments[0]))
        elif plain in _DECODE:
            decoders[name] = _DECODE[plain]
    return decoders


def _decode_tuple(decode: Callable[[Any], Any], items: list[Any]) -> tuple[Any, ...]:
    return tuple(decode(item) for item in items)


_DECODERS: dict[type[JobRow | NewJob], dict[str, Callable[[Any], Any]]] = {
    JobRow: _decoders(JobRow),
    NewJob: _decoders(NewJob),
}
