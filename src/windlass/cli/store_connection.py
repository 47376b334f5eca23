"""The store of a command: its URL, and an open client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from windlass.app import Windlass
from windlass.cli.app_loader import load_app
from windlass.client import Client
from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.settings import load_settings
from windlass.stores import open_store, sqlite_path


def find_store(url: str | None, app_path: str | None = None) -> tuple[str, Windlass | None]:
    """Return the URL of the store, by the same rules as `open_client`, and the app that names it.

    Opens nothing. The caller closes the app.
    """
    found = load_settings({"url": url, "app": app_path})
    if url is None and (app_path is not None or (found["app"].is_set and not found["url"].is_set)):
        app = load_app(found["app"].value)
        return app.url, app
    return str(found["url"].value), None


async def store_url(url: str | None, app_path: str | None = None) -> str:
    """Return the URL of the store without opening it."""
    found, app = find_store(url, app_path)
    if app is not None:
        await app.aclose()
    return found


@asynccontextmanager
async def open_client(
    url: str | None, app_path: str | None = None, *, create: bool = False, memory: bool = False
) -> AsyncIterator[Client]:
    """Open a client of the store.

    Precedence: URL or app of the arguments; URL of the settings; URL of the app of the settings;
    the default. Without `create`, a missing file is an error; without `memory`, a store in memory.
    """
    found = load_settings({"url": url, "app": app_path})
    if app_path is not None or (found["app"].is_set and not found["url"].is_set):
        app = load_app(found["app"].value)
        try:
            if url is None:
                _must_exist(app.url, create=create, memory=memory)
                yield app.client()
                return
            codec = app.codec  # another store, the same keys
        finally:
            await app.aclose()
    else:
        codec = None
    store_url = found["url"].value
    _must_exist(store_url, create=create, memory=memory)
    async with open_store(store_url) as store:
        yield Client(store, codec)


def _must_exist(url: str, *, create: bool, memory: bool) -> None:
    path = sqlite_path(url)  # raises for an invalid URL
    if urlsplit(url).scheme == "memory" and not memory:
        raise InvalidArgumentError(
            "jobs in memory: are visible only inside their own process; "
            "use a file: --url sqlite:///jobs.db"
        )
    if path is not None and not create and not path.exists():
        raise StoreUnavailableError(
            f"No database at {path}. Change to its directory, set --url or -A module:app, "
            "or create it with windlass migrate"
        )
