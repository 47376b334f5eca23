"""`windlass serve`: the HTTP API and the dashboard."""

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
from windlass.cli.common_options import Url
from windlass.cli.event_loop import run
from windlass.core.errors import ConfigurationError
from windlass.server.auth.api_keys import ApiKeys
from windlass.server.config import LOOPBACK, AuthMode, ServerConfig
from windlass.settings import Settings, load_settings
from windlass.stores import public_url
from windlass.worker import WorkerConfig
from windlass.worker.loops.sweeper import Sweeper

LOCAL = "127.0.0.1"


def serve(
    app: Annotated[
        str | None, typer.Argument(help="The app, as module:app (default: the `app` setting).")
    ] = None,
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port (8642); 0 for any free port.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Allowed Host header; may be repeated."),
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="Disable authentication: full access for everyone."),
    ] = False,
    url: Url = None,
) -> None:
    """Serve the HTTP API and the dashboard. SIGTERM or Ctrl-C stops it.

    Without an app it serves the jobs at --url but cannot enqueue. Until the
    first `windlass keys create`, local requests need no key; an address that other
    machines reach requires keys. On shutdown, streams are closed and requests finish.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found = load_settings({"app": app, "url": url, "host": host, "port": port})
    if found["app"].value is None or (url is not None and app is None):
        application = Windlass(found["url"].value)
    else:
        application = load_app(found["app"].value)
    if application.url.startswith(("http:", "https:")):
        raise ConfigurationError(
            f"{public_url(application.url)} is itself a server; to run a second one, give the "
            "store behind it: --url postgresql://host/database"
        )
    hosts = frozenset(name.lower() for name in allow_host or ())
    address = found["host"].value, found["port"].value
    config = worker_config(found)
    run(_serve(application, address, hosts, config, no_auth=no_auth), fast=True)


async def _serve(
    app: Windlass,
    address: tuple[str, int],
    hosts: frozenset[str],
    config: WorkerConfig,
    *,
    no_auth: bool,
) -> None:
    host, port = address
    try:
        await app.client().store.ping()
        auth = await _auth_mode(app, host, no_auth=no_auth)
        if auth is AuthMode.OPEN:  # DNS rebinding: a foreign page must not reach this server
            hosts |= LOOPBACK
        api = app.asgi(ServerConfig(auth=auth, hosts=hosts))
        from windlass.server.uvicorn_server import UvicornServer, freeze_gc  # noqa: PLC0415 - optional package

        def started(url: str) -> None:
            freeze_gc()
            _print_startup(app, url, auth)

        server = UvicornServer(api, host, port, on_started=started)
        # If all workers are remote, no other process sweeps this store.
        sweeper = Sweeper(app.client().store, config.sweep_interval, config.retention)
        async with run_in_background(sweeper.run()):
            await server.serve()
    finally:
        await app.aclose()
    terminal.info("Stopped")


@contextlib.asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine during the block, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def serve_locally(app: Windlass, found: Settings) -> AsyncIterator[str | None]:
    """Serve the HTTP API for local requests during the block; yield its address.

    Yields None if the server packages are not installed. If the default port is in use, takes any
    free port; a port that was set explicitly must be free.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        yield None
        return
    from windlass.server.uvicorn_server import UvicornServer  # noqa: PLC0415 - an optional package

    sock = _listen(found["port"].value, explicit=found["port"].is_set)
    addresses: list[str] = []
    listening = asyncio.Event()

    def started(url: str) -> None:
        addresses.append(url)
        listening.set()

    api = app.asgi(ServerConfig(auth=AuthMode.LOCAL))
    server = UvicornServer(api, LOCAL, 0, grace=2, on_started=started, handle_signals=False)
    serving = asyncio.create_task(server.serve([sock]))
    serving.add_done_callback(lambda _: listening.set())
    try:
        await listening.wait()
        if not addresses:
            await serving  # raises the error
        yield addresses[0]
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


def _listen(port: int, *, explicit: bool) -> socket.socket:
    try:
        return socket.create_server((LOCAL, port))
    except OSError as error:
        if explicit:
            raise ConfigurationError(
                f"cannot listen on {LOCAL} port {port} ({error.strerror}); "
                "use another --port, or 0 for any"
            ) from None
        return socket.create_server((LOCAL, 0))


async def _auth_mode(app: Windlass, host: str, *, no_auth: bool) -> AuthMode:
    if no_auth:
        return AuthMode.OPEN
    if _is_loopback(host):
        return AuthMode.LOCAL
    if not await ApiKeys(app.client().store).any():
        raise ConfigurationError(
            f"{host} is reachable from other machines, but there are no API keys: create one with "
            "windlass keys create NAME --role admin, or listen on 127.0.0.1 "
            "(--no-auth disables authentication)"
        )
    return AuthMode.KEYS


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _print_startup(app: Windlass, address: str, auth: AuthMode) -> None:
    terminal.info(f"Serving {public_url(app.url)} at {address}")
    names = sorted(spec.name for spec in app.tasks)
    terminal.info(f"  tasks   {', '.join(names) or 'none'}")
    if auth is AuthMode.OPEN:
        terminal.warn("authentication is disabled; see windlass keys create --help")
