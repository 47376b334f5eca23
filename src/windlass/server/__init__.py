"""The HTTP API: jobs by JSON, their events as they happen, and a door that is locked.

The web packages are loaded by the first call here, and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.core.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from windlass.server.config import ServerConfig
    from windlass.server.context import Home


class Serving:
    """What an app has for those who come by HTTP."""

    def asgi(self: Home, config: ServerConfig | None = None) -> FastAPI:
        """The HTTP API as an ASGI application: to be run, or mounted in another one.

        Callers need an API key, unless `ServerConfig(door=…)` says otherwise.
        """
        _check_installed()
        from windlass.server.app import make_asgi  # noqa: PLC0415 - an optional package

        return make_asgi(self, config)

    def router(self: Home, config: ServerConfig | None = None) -> APIRouter:
        """The same routes for a FastAPI application of your own: `api.include_router(…)`."""
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
