"""The class of all routes: authentication, error responses, security headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from windlass.server.auth.authenticator import Credential
from windlass.server.auth.caller import PUBLIC_CALLER
from windlass.server.auth.permissions import Permission
from windlass.server.context import RequestContext, ServerContext
from windlass.server.problem_details import ApiError, problem_response
from windlass.server.request_body import BodyReceiver, LimitedRequest

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
