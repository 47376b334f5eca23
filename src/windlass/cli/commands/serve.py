"""`windlass serve`: the HTTP API, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import load_app
from windlass.cli.commands.worker import worker_config
from windlass.cli.store_options import Url, run
from windlass.config import Settings, settings
from windlass.core.errors import ConfigurationError
from windlass.server.auth.api_keys import Keys
from windlass.server.config import LOOPBACK, Door, ServerConfig
from windlass.stores import public_url
from windlass.worker import WorkerConfig
from windlass.worker.loops.sweeper import Sweeper

LOCAL = "127.0.0.1"


def serve(
    app: Annotated[
        str | None, typer.Argument(help="The application, as module:app; else the setting app.")
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on (127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port (8642); 0 takes any that is free.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name by which clients may call it; may be repeated."),
    ] = None,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Let everybody in who can reach it, to do anything."),
    ] = False,
    url: Url = None,
) -> None:
    """Serve the HTTP API and the dashboard. SIGTERM or Ctrl-C stops it.

    Without an app it serves the jobs at --url, and can enqueue none. Until
    the first `windlass keys create`, it lets in whoever is on this machine;
    a public address it takes only with keys. When it stops, streams end
    in order, and requests finish.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found = settings({"app": app, "url": url, "host": host, "port": port})
    if found["app"].value is None or (url is not None and app is None):
        application = Windlass(found["url"].value)
    else:
        application = load_app(found["app"].value)
    if application.url.startswith(("http:", "https:")):
        raise ConfigurationError(
            f"the jobs at {public_url(application.url)} are served already; to serve them a second "
            "time, name the store behind that server: --url postgresql://host/database"
        )
    hosts = frozenset(name.lower() for name in allow_host or ())
    place = found["host"].value, found["port"].value
    config = worker_config(found)
    run(_serve(application, place, hosts, config, without_keys=without_keys), quick=True)


async def _serve(
    app: Windlass,
    place: tuple[str, int],
    hosts: frozenset[str],
    config: WorkerConfig,
    *,
    without_keys: bool,
) -> None:
    host, port = place
    try:
        await app.client().store.ping()
        door = await _door(app, host, without_keys=without_keys)
        if door is Door.OPEN:  # a page whose name leads here must not act for who looks at it
            hosts |= LOOPBACK
        api = app.asgi(ServerConfig(door=door, hosts=hosts))
        from windlass.server.uvicorn_server import Server, settle_in  # noqa: PLC0415 - optional package

        def started(where: str) -> None:
            settle_in()
            _introduce(app, where, door)

        server = Server(api, host, port, started=started)
        # Workers elsewhere may be all there are, and none of them moves time along.
        sweeper = Sweeper(app.client().store, config.sweep, config.retention)
        async with beside(sweeper.run()):
            await server.serve()
    finally:
        await app.aclose()
    terminal.say("stopped")


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """It goes on during the block, and is stopped with it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving_here(app: Windlass, given: Settings) -> AsyncIterator[str | None]:
    """In the block, the HTTP API for who is on this machine: where it is, if it can be had at all.

    Not at the port that it would have, if something else has that, unless that one was asked for.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        yield None
        return
    from windlass.server.uvicorn_server import Server  # noqa: PLC0415 - an optional package

    sock = _listening(given["port"].value, asked_for=given["port"].given)
    places: list[str] = []
    listening = asyncio.Event()

    def started(where: str) -> None:
        places.append(where)
        listening.set()

    api = app.asgi(ServerConfig(door=Door.LOCAL))
    server = Server(api, LOCAL, 0, grace=2, started=started, signals=False)
    serving = asyncio.create_task(server.serve([sock]))
    serving.add_done_callback(lambda _: listening.set())
    try:
        await listening.wait()
        if not places:
            await serving  # it says what is wrong
        yield places[0]
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


def _listening(port: int, *, asked_for: bool) -> socket.socket:
    try:
        return socket.create_server((LOCAL, port))
    except OSError as error:
        if asked_for:
            raise ConfigurationError(
                f"{LOCAL} port {port} cannot be listened on ({error.strerror}); "
                "try another --port, or 0 for any"
            ) from None
        return socket.create_server((LOCAL, 0))


async def _door(app: Windlass, host: str, *, without_keys: bool) -> Door:
    if without_keys:
        return Door.OPEN
    if _is_loopback(host):
        return Door.LOCAL
    if not await Keys(app.client().store).any():
        raise ConfigurationError(
            f"{host} can be reached from elsewhere, and there are no API keys: make one with "
            "windlass keys create NAME --role admin, or listen on 127.0.0.1 "
            "(--without-keys lets everybody in)"
        )
    return Door.KEYS


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _introduce(app: Windlass, place: str, door: Door) -> None:
    terminal.say(f"serving {public_url(app.url)} at {place}")
    names = sorted(spec.name for spec in app.tasks)
    terminal.say(f"  tasks   {', '.join(names) or 'none'}")
    if door is Door.OPEN:
        terminal.warn("everybody who can reach it may do anything; see windlass keys create --help")
