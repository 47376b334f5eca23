"""Options that commands share, and the store or app that they lead to."""

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
from windlass.stores import file_of, open_store

T = TypeVar("T")
MIN_PIECE = 4
Url = Annotated[
    str | None,
    typer.Option("--url", help="Where the jobs are kept: sqlite:///jobs.db, https://server."),
]
AppPath = Annotated[str | None, typer.Option("--app", "-A", help="The application, as module:app.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for scripts instead of tables.")]
JobId = Annotated[str, typer.Argument(help="The job's id, or its beginning or end.")]
JobIds = Annotated[list[str], typer.Argument(help="The jobs' ids, or their beginnings or ends.")]


def run(work: Coroutine[Any, Any, T], *, quick: bool = False) -> T:
    """Run it to its end; `quick` for what runs long: by uvloop, where that is installed."""
    with asyncio.Runner(loop_factory=_quick_loop() if quick else None) as runner:
        return runner.run(work)


def _quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - optional, and 80 ms that a short command need not spend
    except ImportError:
        return None
    return uvloop.new_event_loop


def url_option(url: str, name: str) -> str | None:
    return dict(parse_qsl(urlsplit(url).query)).get(name)


def the_app(path: str | None) -> Windlass:
    """The application that was named, here or in the settings."""
    setting = settings({"app": path})["app"]
    if setting.value is None:
        raise ConfigurationError(
            "no application is named: add -A module:app, or set WINDLASS_APP, "
            'or write app = "module:app" in windlass.toml'
        )
    return load_app(setting.value)


async def the_url(url: str | None, app_path: str | None = None) -> str:
    """Where the jobs are that are meant, by the same rules as `opened`, without opening them."""
    found = settings({"url": url, "app": app_path})
    if url is None and (app_path is not None or (found["app"].given and not found["url"].given)):
        app = load_app(found["app"].value)
        await app.aclose()
        return app.url
    return str(found["url"].value)


@asynccontextmanager
async def opened(
    url: str | None, app_path: str | None = None, *, make: bool = False
) -> AsyncIterator[Client]:
    """A client of the store that is meant.

    The argument's URL or app; else the URL of the settings; else the app of the settings, whose URL
    is then the one; else the default. Without `make`, a file that does not exist stays so.
    """
    found = settings({"url": url, "app": app_path})
    if app_path is not None or (found["app"].given and not found["url"].given):
        app = load_app(found["app"].value)
        try:
            if url is None:
                _must_exist(app.url, make=make)
                yield app.client()
                return
            codec = app.codec  # another place, the same keys
        finally:
            await app.aclose()
    else:
        codec = None
    place = found["url"].value
    _must_exist(place, make=make)
    async with open_store(place) as store:
        yield Client(store, codec)


def _must_exist(url: str, *, make: bool) -> None:
    path = file_of(url)  # which refuses a URL that is none
    if urlsplit(url).scheme == "memory":
        raise InvalidArgumentError(
            "jobs in memory: are seen only by the process that holds them; "
            "name a file: --url sqlite:///jobs.db"
        )
    if path is not None and not make and not path.exists():
        raise StoreUnavailableError(
            f"no jobs are kept in {path}: there is no such file. Go to the directory that has it, "
            "name it with --url or -A module:app, or make it with windlass migrate"
        )


async def which(client: Client, text: str) -> UUID:
    """The job that is meant: by its whole id, or a piece of it that only one recent job has."""
    try:
        return UUID(text)
    except ValueError:
        pass
    piece = text.lower()
    if len(piece) < MIN_PIECE or not set(piece) <= set("0123456789abcdef-"):
        raise InvalidArgumentError(
            f"{text!r} is no job id; give all of it, or {MIN_PIECE} or more of its first or last "
            "characters"
        )
    page = await client.store.find(Query(limit=MAX_PAGE))
    ids = [row.id for row in page.rows]
    found = [job for job in ids if str(job).startswith(piece) or str(job).endswith(piece)]
    if not found:
        raise NotFoundError(f"none of the {len(ids)} most recent jobs begins or ends with {text!r}")
    if len(found) > 1:
        raise InvalidArgumentError(
            f"{len(found)} recent jobs begin or end with {text!r}, {found[0]} and {found[1]} among "
            "them; give more of the id (the end differs most)"
        )
    return found[0]
