"""`windlass serve`: the HTTP API, until it is told to stop."""

from __future__ import annotations

import ipaddress
import logging
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.loading import load_app
from windlass.cli.opening import Url, run
from windlass.config import settings
from windlass.core.errors import ConfigurationError
from windlass.server.config import Door, ServerConfig
from windlass.server.keys import Keys
from windlass.stores import public_url


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
    """Serve the HTTP API. SIGTERM or Ctrl-C stops it: streams end in order, requests finish.

    Without an app it serves the jobs at --url, and can enqueue none. Until
    the first `windlass keys create`, it lets in whoever is on this machine;
    a public address it takes only with keys.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found = settings({"app": app, "url": url, "host": host, "port": port})
    if found["app"].value is None or (url is not None and app is None):
        application = Windlass(found["url"].value)
    else:
        application = load_app(found["app"].value)
    hosts = frozenset(name.lower() for name in allow_host or ())
    place = found["host"].value, found["port"].value
    run(_serve(application, place, hosts, without_keys=without_keys), quick=True)


async def _serve(
    app: Windlass, place: tuple[str, int], hosts: frozenset[str], *, without_keys: bool
) -> None:
    host, port = place
    try:
        await app.client().store.ping()
        door = await _door(app, host, without_keys=without_keys)
        api = app.asgi(ServerConfig(door=door, hosts=hosts))
        from windlass.server.running import Server  # noqa: PLC0415 - an optional package

        server = Server(api, host, port, started=lambda where: _introduce(app, where, door))
        await server.serve()
    finally:
        await app.aclose()
    terminal.say("stopped")


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
