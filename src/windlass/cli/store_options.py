"""Options shared by commands, and the store or app that they select."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit
from uuid import UUID

import typer

from windlass.app import Windlass
from windlass.cli.app_loader import load_app
from windlass.client import Client
from windlass.config import settings
from windlass.core.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    StoreUnavailableError,
)
from windlass.core.query.job_query import MAX_PAGE, Query
from windlass.stores import open_store, sqlite_path

T = TypeVar("T")
MIN_ID_PART = 4  # characters
Url = Annotated[
    str | None,
    typer.Option("--url", help="URL of the store: sqlite:///jobs.db, https://server."),
]
AppPath = Annotated[str | None, typer.Option("--app", "-A", help="The app, as module:app.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
JobId = Annotated[str, typer.Argument(help="Job id, or its first or last characters.")]
JobIds = Annotated[list[str], typer.Argument(help="Job ids, or their first or last characters.")]


def run(work: Coroutine[Any, Any, T], *, fast: bool = False) -> T:
    """Run a coroutine; with `fast` on uvloop, if it is installed."""
    with asyncio.Runner(loop_factory=_uvloop_factory() if fast else None) as runner:
        return runner.run(work)


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional; its import takes 80 ms
    except ImportError:
        return None
    return uvloop.new_event_loop


def url_option(url: str, name: str) -> str | None:
    return dict(parse_qsl(urlsplit(url).query)).get(name)


def require_app(path: str | None) -> Windlass:
    """Load the app of the option or of the settings."""
    setting = settings({"app": path})["app"]
    if setting.value is None:
        raise ConfigurationError(
            "no app given: add -A module:app, set WINDLASS_APP, "
            'or write app = "module:app" in windlass.toml'
        )
    return load_app(setting.value)


async def store_url(url: str | None, app_path: str | None = None) -> str:
    """Return the URL of the store, by the same rules as `open_client`, without opening it."""
    found = settings({"url": url, "app": app_path})
    if url is None and (app_path is not None or (found["app"].is_set and not found["url"].is_set)):
        app = load_app(found["app"].value)
        await app.aclose()
        return app.url
    return str(found["url"].value)


@asynccontextmanager
async def open_client(
    url: str | None, app_path: str | None = None, *, create: bool = False
) -> AsyncIterator[Client]:
    """Open a client of the store.

    Precedence: URL or app of the arguments; URL of the settings; URL of the app of the settings;
    the default. Without `create`, a missing file is an error.
    """
    found = settings({"url": url, "app": app_path})
    if app_path is not None or (found["app"].is_set and not found["url"].is_set):
        app = load_app(found["app"].value)
        try:
            if url is None:
                _must_exist(app.url, create=create)
                yield app.client()
                return
            codec = app.codec  # another store, the same keys
        finally:
            await app.aclose()
    else:
        codec = None
    store_url = found["url"].value
    _must_exist(store_url, create=create)
    async with open_store(store_url) as store:
        yield Client(store, codec)


def _must_exist(url: str, *, create: bool) -> None:
    path = sqlite_path(url)  # raises for an invalid URL
    if urlsplit(url).scheme == "memory":
        raise InvalidArgumentError(
            "jobs in memory: are visible only inside their own process; "
            "use a file: --url sqlite:///jobs.db"
        )
    if path is not None and not create and not path.exists():
        raise StoreUnavailableError(
            f"No database at {path}. Change to its directory, set --url or -A module:app, "
            "or create it with windlass migrate"
        )


async def find_job(client: Client, text: str) -> UUID:
    """Return the id of a job, given whole or as a part that only one recent job has."""
    try:
        return UUID(text)
    except ValueError:
        pass
    part = text.lower()
    if len(part) < MIN_ID_PART or not set(part) <= set("0123456789abcdef-"):
        raise InvalidArgumentError(
            f"{text!r} is not a job id; give the whole id, or at least {MIN_ID_PART} of its first "
            "or last characters"
        )
    page = await client.store.find(Query(limit=MAX_PAGE))
    ids = [row.id for row in page.rows]
    found = [job for job in ids if str(job).startswith(part) or str(job).endswith(part)]
    if not found:
        raise NotFoundError(f"none of the {len(ids)} most recent jobs starts or ends with {text!r}")
    if len(found) > 1:
        raise InvalidArgumentError(
            f"{len(found)} recent jobs start or end with {text!r}, such as {found[0]} and "
            f"{found[1]}; give more of the id (the end differs most)"
        )
    return found[0]
