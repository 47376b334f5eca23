"""HTTP API: jobs as JSON, event streams, authentication, dashboard.

The web packages are imported by the first call here, and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.core.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from windlass.server.config import ServerConfig
    from windlass.server.context import ServedApp


class HttpApi:
    """The methods of an app that serve it over HTTP."""

    def asgi(self: ServedApp, config: ServerConfig | None = None) -> FastAPI:
        """The HTTP API and dashboard as an ASGI application: run it, or mount it in your own.

        Clients need an API key, unless you set `ServerConfig(auth=…)`.
        """
        _check_installed()
        from windlass.server.app import make_asgi  # noqa: PLC0415 - an optional package

        return make_asgi(self, config)

    def router(self: ServedApp, config: ServerConfig | None = None) -> APIRouter:
        """The same API routes for your own FastAPI application: `api.include_router(…)`."""
        _check_installed()
        from windlass.server.app import make_router  # noqa: PLC0415 - an optional package

        return make_router(self, config)


def _check_installed() -> None:
    try:
        import fastapi  # noqa: F401, PLC0415 - an optional package
    except ImportError:
        raise ConfigurationError(
            "the server needs FastAPI: pip install 'windlass[server]'"
        ) from None
