"""Build the ASGI application, or a router for another application."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.exceptions import HTTPException

from windlass.core.version import version
from windlass.server import dashboard
from windlass.server.auth.permissions import Permission
from windlass.server.auth.sessions import COOKIE
from windlass.server.config import ServerConfig
from windlass.server.context import ServedApp, ServerContext
from windlass.server.problem_details import problem_response, problem_responses
from windlass.server.protected_route import SECURITY_HEADERS, protected_route_class
from windlass.server.routes.route_table import ROUTES, Route

DESCRIPTION = "Durable jobs: enqueue them, follow their progress, control them."
_COMMON_PROBLEMS = (400, 401, 403, 421, 429, 503)
_BODY_PROBLEMS = (408, 413)  # of routes that take a JSON body
_NOT_JSON = 415
NOT_FOUND = 404
_bearer = HTTPBearer(auto_error=False, description="An API key: `windlass keys create`.")
_cookie = APIKeyCookie(
    name=COOKIE, auto_error=False, description="A browser session: `POST /api/session`."
)


def make_router(app: ServedApp, config: ServerConfig | None = None) -> APIRouter:
    router = APIRouter()
    _add_all(router, ServerContext(app, config or ServerConfig()))
    return router


def make_asgi(app: ServedApp, config: ServerConfig | None = None) -> FastAPI:
    server = ServerContext(app, config or ServerConfig())
    # FastAPI's own documentation pages load scripts from other hosts, so they are disabled.
    api = FastAPI(
        title="Windlass",
        version=version(),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would echo the Host header of the request
    )
    api.state.server_context = server
    _add_all(api.router, server)  # `include_router` would analyze each route twice
    document = Route("GET", "/api/openapi.json", _openapi, Permission.READ, internal=True)
    _add(api.router, server, document)
    for path in dashboard.PAGES:
        page = dashboard.page_endpoint(path.count("/"))
        _add(api.router, server, Route("GET", f"/{path}", page, Permission.PUBLIC, internal=True))
    asset = Route("GET", dashboard.ASSET, dashboard.asset, Permission.PUBLIC, internal=True)
    _add(api.router, server, asset)
    api.add_exception_handler(HTTPException, _http_error)
    return api


def _add_all(router: APIRouter, server: ServerContext) -> None:
    for route in ROUTES:
        _add(router, server, route)


def _add(router: APIRouter, server: ServerContext, route: Route) -> None:
    of_body = _BODY_PROBLEMS if _NOT_JSON in route.problems else ()
    responses: dict[int | str, dict[str, Any]] = problem_responses(
        *_COMMON_PROBLEMS, *of_body, *route.problems
    )
    responses |= {status: dict(response) for status, response in route.responses.items()}
    if route.links:
        for status in {route.status, *route.responses}:
            responses[status] = responses.get(status, {}) | {"links": dict(route.links)}
    module = route.endpoint.__module__.rpartition(".")[2]
    public = route.permission is Permission.PUBLIC
    router.add_api_route(
        route.path,
        route.endpoint,
        methods=[route.method],
        status_code=route.status,
        responses=responses,
        summary=_summary(route.endpoint),
        operation_id=f"{module}_{route.endpoint.__name__}",
        tags=[module],
        dependencies=[] if public else [Depends(_bearer), Depends(_cookie)],
        route_class_override=protected_route_class(server, route.permission, route.credentials),
        include_in_schema=not route.internal,
    )


def _summary(endpoint: Callable[..., Any]) -> str:
    """Return the first line of the docstring, without the period."""
    return (inspect.getdoc(endpoint) or endpoint.__name__).partition("\n")[0].rstrip(".")


async def _openapi(request: Request) -> JSONResponse:
    api: FastAPI = request.scope["app"]
    return JSONResponse(api.openapi())


async def _http_error(request: Request, error: Exception) -> Response:
    response: Response = problem_response(error, request)
    if response.status_code == NOT_FOUND:
        response = dashboard.not_found_page(request) or response
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    return response
