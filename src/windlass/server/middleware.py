"""Checks of every request: body limits, authentication, error responses, security headers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from windlass.server.auth.authenticator import PUBLIC_CALLER, Credential, Permission
from windlass.server.config import ServerConfig
from windlass.server.context import RequestContext, ServerContext
from windlass.server.drain_body import BodyReceiver
from windlass.server.problems import ApiError, problem_response

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
MAX_PUBLIC_BODY = 4096  # bytes of a body without authentication
MAX_QUERY_PARAMETERS = 500
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class LimitedRequest(Request):
    """A request with limits on the size, the duration and the JSON depth of its body."""

    def __init__(self, request: Request, max_body: int, config: ServerConfig) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body = max_body
        self._max_depth = config.max_json_depth
        self._timeout = config.read_timeout

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size = 0
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) < 20:  # noqa: PLR2004 - digits
            self._check_size(int(length))
        async for chunk in super().stream():
            size += len(chunk)
            self._check_size(size)
            yield chunk

    def _check_size(self, size: int) -> None:
        if size > self._max_body:
            raise ApiError("too_large", f"the body exceeds the limit of {self._max_body:,} bytes")

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(self._timeout):
                return await super().body()
        except TimeoutError:
            detail = f"the body was not received within {self._timeout:g} s"
            raise ApiError("request_timeout", detail, {"Connection": "close"}) from None

    async def json(self) -> Any:
        body = await self.body()
        try:
            value = json.loads(body, parse_constant=_reject_constant)
        except RecursionError:
            raise self._too_deep() from None
        except UnicodeDecodeError:
            raise ApiError("bad_request", "the body is not UTF-8") from None
        if _deeper_than(value, self._max_depth):
            raise self._too_deep()
        return value

    def _too_deep(self) -> ApiError:
        return ApiError("bad_request", f"the JSON is nested deeper than {self._max_depth} levels")


def _reject_constant(name: str) -> Any:
    raise ApiError("bad_request", f"{name} is not valid JSON; omit it, or send null")


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def protected_route_class(
    server: ServerContext, permission: Permission, credentials: frozenset[Credential] = frozenset()
) -> type[APIRoute]:
    """Return the class of routes that need this permission."""

    class ProtectedRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            inner = super().get_route_handler()
            takes_body = self.body_field is not None

            async def handle(request: Request) -> Response:
                receiver = BodyReceiver(request.receive)
                request = Request(request.scope, receiver)
                try:
                    response = await _handle(request, inner, takes_body=takes_body)
                except Exception as error:  # noqa: BLE001 - each becomes a problem response
                    response = problem_response(error, request)
                    await receiver.drain(request)
                except asyncio.CancelledError:
                    if not server.hub.closed:
                        raise
                    stopping = ApiError("stopping", "the request did not finish before shutdown")
                    response = problem_response(stopping, request)
                present = {name for name, _ in response.raw_headers}
                response.raw_headers.extend(h for h in _RAW_HEADERS if h[0] not in present)
                return response

            return handle

    async def _handle(request: Request, inner: Handler, *, takes_body: bool) -> Response:
        _check_query(request)
        caller = await server.authenticator.authorize(request, permission, credentials)
        if takes_body:
            _check_json(request)
        request.state.context = RequestContext(server, caller)
        limit = server.config.max_body
        if caller is PUBLIC_CALLER:
            limit = min(MAX_PUBLIC_BODY, limit)
        return await inner(LimitedRequest(request, limit, server.config))

    return ProtectedRoute


def _check_query(request: Request) -> None:
    """Limit the parameters: reporting thousands of unknown ones takes seconds."""
    found = request.scope["query_string"].count(b"&") + 1
    if found > MAX_QUERY_PARAMETERS:
        raise ApiError(
            "bad_request",
            f"the query has {found:,} parameters, the limit is {MAX_QUERY_PARAMETERS}",
        )


def _check_json(request: Request) -> None:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if kind.lower() != "application/json":
        raise ApiError("media_type", f"the content type is {kind}; this server accepts only JSON")
