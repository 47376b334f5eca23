"""From an app to an ASGI application, or to a router for somebody else's."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.exceptions import HTTPException

from windlass.server import dashboard
from windlass.server.auth.authenticator import Need
from windlass.server.auth.sessions import COOKIE
from windlass.server.config import ServerConfig
from windlass.server.context import Home, Site
from windlass.server.middleware import HEADERS, guarded
from windlass.server.problems import answer, documented
from windlass.server.routes.route_table import TABLE, Route
from windlass.server.version import version

ABOUT = "Durable jobs: enqueue them, follow what happens to them, act on them."
_ALWAYS = (400, 401, 403, 421, 429, 503)
_NOT_JSON = 415
NOT_FOUND = 404
_OF_BODIES = (408, 413)  # of those that take one
_bearer = HTTPBearer(auto_error=False, description="An API key: `windlass keys create`.")
_cookie = APIKeyCookie(
    name=COOKIE, auto_error=False, description="A browser's session: `POST /api/session`."
)


def make_router(app: Home, config: ServerConfig | None = None) -> APIRouter:
    router = APIRouter()
    _add_all(router, Site(app, config or ServerConfig()))
    return router


def make_asgi(app: Home, config: ServerConfig | None = None) -> FastAPI:
    site = Site(app, config or ServerConfig())
    # Its pages of documentation would load scripts from elsewhere; the document itself is below.
    api = FastAPI(
        title="Windlass",
        version=version(),
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would lead on to whatever name the caller gave us
    )
    api.state.site = site
    _add_all(api.router, site)  # FastAPI would analyze each route twice if it included them
    document = Route("GET", "/api/openapi.json", _document, Need.READ, internal=True)
    _add(api.router, site, document)
    for path in dashboard.PAGES:
        shown = dashboard.page(path.count("/"))
        _add(api.router, site, Route("GET", f"/{path}", shown, Need.NOTHING, internal=True))
    asset = Route("GET", dashboard.ASSET, dashboard.asset, Need.NOTHING, internal=True)
    _add(api.router, site, asset)
    api.add_exception_handler(HTTPException, _no_such_route)
    return api


def _add_all(router: APIRouter, site: Site) -> None:
    for route in TABLE:
        _add(router, site, route)


def _add(router: APIRouter, site: Site, route: Route) -> None:
    body = _OF_BODIES if _NOT_JSON in route.problems else ()
    told: dict[int | str, dict[str, Any]] = documented(*_ALWAYS, *body, *route.problems)
    told |= {status: dict(answer) for status, answer in route.answers.items()}
    if route.links:
        for status in {route.status, *route.answers}:
            told[status] = told.get(status, {}) | {"links": dict(route.links)}
    router.add_api_route(
        route.path,
        route.endpoint,
        methods=[route.method],
        status_code=route.status,
        responses=told,
        operation_id=f"{route.endpoint.__module__.rpartition('.')[2]}_{route.endpoint.__name__}",
        tags=[route.endpoint.__module__.rpartition(".")[2]],
        dependencies=[] if route.need is Need.NOTHING else [Depends(_bearer), Depends(_cookie)],
        route_class_override=guarded(site, route.need, route.by),
        include_in_schema=not route.internal,
    )


async def _document(request: Request) -> JSONResponse:
    api: FastAPI = request.scope["app"]
    return JSONResponse(api.openapi())


async def _no_such_route(request: Request, error: Exception) -> Response:
    response: Response = answer(error, request)
    if response.status_code == NOT_FOUND:
        response = dashboard.lost(request) or response
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
