"""Error responses: application/problem+json (RFC 9457), from one table of codes."""

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

# code: status, title, advice
PROBLEMS: Mapping[str, tuple[int, str, str]] = {
    "bad_request": (400, "Malformed request", "correct the request and send it again"),
    "unauthorized": (401, "Authentication failed", "send `Authorization: Bearer <key>`"),
    "forbidden": (403, "Permission denied", "use a key with the role that this needs"),
    "cross_site": (403, "Cross-site request", "send it from this server's own pages or a client"),
    "not_found": (
        404,
        "Not found",
        "check the id; it may be deleted, past retention, or not visible to this key",
    ),
    "no_route": (404, "No such path", "see /api/openapi.json for all paths"),
    "method": (405, "Method not allowed", "see /api/openapi.json"),
    "request_timeout": (408, "Request timeout", "send the body faster, or in smaller requests"),
    "conflict": (409, "Conflict with the current state", "read the current state, then decide"),
    "stale_lease": (409, "Lease lost", "stop the attempt; another worker may run the job"),
    "protocol": (400, "Store protocol mismatch", "use compatible versions of Windlass"),
    "too_large": (413, "Request too large", "store large data elsewhere and pass its URL"),
    "media_type": (415, "Unsupported media type", "send `Content-Type: application/json`"),
    "host": (421, "Unknown host name", "use a host name of this server, or allow this one"),
    "invalid_argument": (422, "Invalid value", "correct the named fields and send it again"),
    "codec": (422, "Value cannot be stored", "send plain JSON values"),
    "store_unavailable": (503, "Store unavailable", "retry in a moment"),
    "store": (503, "Store error", "retry; repeating the request is safe"),
    "store_corrupt": (503, "Store corrupted", "see the server's log; restore a backup"),
    "store_denied": (503, "Store denied access to the server", "check the server's own API key"),
    "schema": (503, "Store schema mismatch", "run `windlass migrate`"),
    "stopping": (503, "Server shutting down", "retry, here or at another server"),
    "rate_limited": (429, "Too many requests", "retry after the seconds in Retry-After"),
    "too_many_streams": (
        429,
        "Too many open streams",
        "close some, follow many jobs on one stream (GET /api/events), or wait for Retry-After",
    ),
    "internal": (500, "Internal server error", "see the server's log"),
}
_CODE_OF_STATUS = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "no_route",
                   405: "method", 413: "too_large", 415: "media_type"}  # fmt: skip
_RETRY_AFTER = {503: "1"}
_INVALID = 422


class FieldProblem(BaseModel):
    """An invalid field of a request."""

    field: str
    message: str


class Problem(BaseModel):
    """An error: what (`title`, `detail`), where (`instance`, `errors`), what to do (`advice`)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str
    advice: str
    errors: list[FieldProblem] | None = None


class ApiError(HTTPException):
    """A request that the server rejects; `code` is a key of `PROBLEMS`."""

    def __init__(self, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(PROBLEMS[code][0], detail, headers)
        self.code = code


class InvalidFieldsError(WindlassError):
    """Invalid values, each with the name of its field."""

    code = "invalid_argument"

    def __init__(self, *errors: FieldProblem) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors))
        self.errors = list(errors)


def invalid_field(field: str, message: str) -> InvalidFieldsError:
    return invalid_fields([(field, message)])


def invalid_fields(problems: Sequence[tuple[str, str]]) -> InvalidFieldsError:
    return InvalidFieldsError(
        *(
            FieldProblem(field=_encodable(field), message=_encodable(message))
            for field, message in problems
        )
    )


def _encodable(text: str) -> str:
    """Escape lone surrogates: JSON input may contain them, UTF-8 output cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


def field_problems(errors: Sequence[Any], skip: int = 0) -> list[FieldProblem]:
    """Convert pydantic errors; `skip` drops the leading parts of each location."""
    return [
        FieldProblem(
            field=_encodable(_location(error, skip) or "body"),
            message=_encodable(str(error["msg"]) + _json_error(error)),
        )
        for error in errors
    ]


def _location(error: Mapping[str, Any], skip: int) -> str:
    """Return the dotted field; empty for malformed JSON, whose message has the offset."""
    found = () if error["type"] == "json_invalid" else error["loc"][skip:]
    return ".".join(map(str, found))


def _json_error(error: Mapping[str, Any]) -> str:
    cause = (error.get("ctx") or {}).get("error")
    return f" ({cause})" if error["type"] == "json_invalid" and cause else ""


def problem(error: BaseException, instance: str | None = None) -> Problem:
    """Describe an error for a response. Unexpected errors reveal no details."""
    errors: list[FieldProblem] | None = None
    if isinstance(error, RequestValidationError):
        errors = field_problems(error.errors(), skip=1)
        code, detail = "invalid_argument", "; ".join(f"{e.field}: {e.message}" for e in errors)
    elif isinstance(error, ApiError):
        code, detail = error.code, str(error.detail)
    elif isinstance(error, HTTPException):
        code, detail = _CODE_OF_STATUS.get(error.status_code, "bad_request"), str(error.detail)
    elif isinstance(error, WindlassError) and error.code in PROBLEMS:
        code, detail = error.code, str(error)
        errors = error.errors if isinstance(error, InvalidFieldsError) else None
    else:
        code, detail = "internal", "unexpected error; see the server's log for details"
    status, title, advice = PROBLEMS[code]
    return Problem(
        type=URN + code,
        title=title,
        status=status,
        detail=_encodable(detail),
        instance=None if instance is None else _encodable(instance),
        code=code,
        advice=advice,
        errors=errors,
    )


def problem_response(error: BaseException, request: Request) -> JSONResponse:
    """Build the response to a failed request."""
    body = problem(error, request.url.path)
    if body.status >= 500:  # noqa: PLR2004 - server errors
        log.error("%s %s: %s", request.method, request.url.path, body.detail, exc_info=error)
    headers = dict(getattr(error, "headers", None) or {})
    if body.status in _RETRY_AFTER:
        headers["Retry-After"] = _RETRY_AFTER[body.status]
    return JSONResponse(
        body.model_dump(exclude_none=True),
        body.status,
        headers=headers,
        media_type=MEDIA_TYPE,
    )


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses of a route for the OpenAPI document."""
    titles = {status: title for status, title, _ in reversed([*PROBLEMS.values()])}
    schema = {"$ref": "#/components/schemas/Problem"}
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": titles[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*statuses, _INVALID})
    }
    responses[_INVALID]["model"] = Problem  # adds the schema to the document
    return responses
