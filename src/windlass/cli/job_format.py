"""Text of values that the codec must decode: arguments, results, errors."""

from __future__ import annotations

from typing import Any

from windlass.client import Client
from windlass.core.codec import Purpose
from windlass.core.job.failure import Failure
from windlass.schemas.base import decode_value

ENCRYPTED = "(encrypted: give the app that has the key, -A module:app)"


def decoded(client: Client, data: bytes | None, purpose: Purpose) -> Any:
    """Return the value; for a value that is encrypted with another key, what to do."""
    value, sealed = decode_value(client.codec, data, purpose)
    return ENCRYPTED if sealed else value


def error_fields(client: Client, failure: Failure) -> dict[str, Any]:
    """Return type, message and traceback of an error; empty if only its code is stored."""
    return body_fields(decoded(client, failure.body, Purpose.ERROR))


def body_fields(body: Any) -> dict[str, Any]:
    """Return the fields of a decoded body; a body that is no object is the message."""
    if body is None:
        return {}
    return body if isinstance(body, dict) else {"message": body}
