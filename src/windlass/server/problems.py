"""Errors on the wire: application/problem+json (RFC 9457), from one table of codes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from windlass.core.errors import WindlassError

log = logging.getLogger("windlass.server")
MEDIA_TYPE = "application/problem+json"
URN = "urn:windlass:problem:"

# code: status, title, what to do
SORTS: Mapping[str, tuple[int, str, str]] = {
    "bad_request": (400, "The request cannot be read", "correct the request and send it again"),
    "unauthorized": (401, "No valid API key", "send `Authorization: Bearer <key>`"),
    "forbidden": (403, "The key may not do this", "use a key that has the role"),
    "cross_site": (403, "Another site asks", "ask from this server's own pages, or without them"),
    "not_found": (404, "There is no such thing here", "mind the id; it may be past keeping"),
    "no_route": (404, "There is no such address", "see /api/openapi.json for all of them"),
    "method": (405, "The address does not know this method", "see /api/openapi.json"),
    "too_slow": (408, "The request came too slowly", "send it faster, or less at a time"),
    "conflict": (409, "The state of things forbids it", "look at it again, then decide"),
    "stale_lease": (409, "The lease is gone", "stop the attempt; another worker may have it"),
    "protocol": (400, "Another version of the store protocol", "use versions that fit together"),
    "too_large": (413, "Too large", "keep large data elsewhere and pass its address"),
    "media_type": (415, "Not JSON", "send `Content-Type: application/json`"),
    "host": (421, "This server is not called so", "call it by its own name, or allow this one"),
    "invalid_argument": (422, "A value is wrong", "correct what is named, and send it again"),
    "codec": (422, "A value cannot be stored", "send plain JSON values"),
    "store_unavailable": (503, "The store does not answer", "ask again in a moment"),
    "store": (503, "The store could not answer", "ask again: a repeat is harmless"),
    "store_corrupt": (503, "The store is damaged", "see the server's log; restore a backup"),
    "store_denied": (503, "The server's own store refuses it", "see to the server's own key"),
    "schema": (503, "The store's schema does not fit", "run `windlass migrate`"),
    "stopping": (503, "The server is stopping", "ask again, here or at another server"),
    "too_often": (429, "Too many requests", "wait for as long as Retry-After says"),
    "too_many_streams": (
        429,
        "Too many open streams",
        "end some, or follow many jobs on one (GET /api/events); or ask again after Retry-After",
    ),
    "internal": (500, "The server has a fault", "see the server's log"),
}
_OF_STATUS = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "no_route",
              405: "method", 413: "too_large", 415: "media_type"}  # fmt: skip
_RETRY_AFTER = {503: "1"}
_WRONG = 422


class FieldProblem(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """What is wrong (`title`, `detail`), where (`instance`, `errors`), what to do (`advice`)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str
    advice: str
    errors: list[FieldProblem] | None = None


class Refusal(HTTPException):
    """What the server itself refuses, by a code of the table."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(SORTS[code][0], detail, headers)
        self.code = code


class WrongFieldsError(WindlassError):
    """Values that are wrong, each with the name of its field."""

    code = "invalid_argument"

    def __init__(self, *errors: FieldProblem) -> None:
        super().__init__("; ".join(f"{one.field}: {one.message}" for one in errors))
        self.errors = list(errors)


def wrong(field: str, message: str) -> WrongFieldsError:
    return all_wrong([(field, message)])


def all_wrong(problems: Sequence[tuple[str, str]]) -> WrongFieldsError:
    return WrongFieldsError(
        *(
            FieldProblem(field=_sendable(field), message=_sendable(message))
            for field, message in problems
        )
    )


def _sendable(text: str) -> str:
    """JSON may name half a character, which no answer could be written with."""
    return text.encode("utf-8", "backslashreplace").decode()


def fields_of(errors: Sequence[Any], skip: int = 0) -> list[FieldProblem]:
    """What pydantic found; `skip` is how many parts of each place do not speak of a field."""
    return [
        FieldProblem(
            field=_sendable(_place(one, skip) or "body"),
            message=_sendable(str(one["msg"]) + _told(one)),
        )
        for one in errors
    ]


def _place(error: Mapping[str, Any], skip: int) -> str:
    """Of what is no JSON at all, the place is a number of letters, and its message has it."""
    found = () if error["type"] == "json_invalid" else error["loc"][skip:]
    return ".".join(map(str, found))


def _told(error: Mapping[str, Any]) -> str:
    why = (error.get("ctx") or {}).get("error")
    return f" ({why})" if error["type"] == "json_invalid" and why else ""


def problem(error: BaseException, instance: str | None = None) -> Problem:
    """What is told of an error; of one that nobody foresaw, nothing but that."""
    errors: list[FieldProblem] | None = None
    if isinstance(error, RequestValidationError):
        errors = fields_of(error.errors(), skip=1)
        code, detail = "invalid_argument", "; ".join(f"{e.field}: {e.message}" for e in errors)
    elif isinstance(error, Refusal):
        code, detail = error.code, str(error.detail)
    elif isinstance(error, HTTPException):
        code, detail = _OF_STATUS.get(error.status_code, "bad_request"), str(error.detail)
    elif isinstance(error, WindlassError) and error.code in SORTS:
        code, detail = error.code, str(error)
        errors = error.errors if isinstance(error, WrongFieldsError) else None
    else:
        code, detail = "internal", "what went wrong is in the server's log"
    status, title, advice = SORTS[code]
    return Problem(
        type=URN + code,
        title=title,
        status=status,
        detail=_sendable(detail),
        instance=None if instance is None else _sendable(instance),
        code=code,
        advice=advice,
        errors=errors,
    )


def answer(error: BaseException, request: Request) -> JSONResponse:
    """The response to a request that failed."""
    told = problem(error, request.url.path)
    if told.status >= 500:  # noqa: PLR2004 - the server's own
        log.error("%s %s: %s", request.method, request.url.path, told.detail, exc_info=error)
    headers = dict(getattr(error, "headers", None) or {})
    if told.status in _RETRY_AFTER:
        headers["Retry-After"] = _RETRY_AFTER[told.status]
    return JSONResponse(
        told.model_dump(exclude_none=True),
        told.status,
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: the problems that a route may answer."""
    titles = {status: title for status, title, _ in reversed([*SORTS.values()])}
    schema = {"$ref": "#/components/schemas/Problem"}
    found: dict[int | str, dict[str, Any]] = {
        status: {"description": titles[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, _WRONG})
    }
    found[_WRONG]["model"] = Problem  # by which the document gets to know its shape
    return found
