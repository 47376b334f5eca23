"""`windlass dev`: a worker here, with its jobs to be seen as they run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import load_app
from windlass.cli.commands.serve import serving_here
from windlass.cli.commands.worker import introduce, worker_config
from windlass.cli.demo_app import WELCOME, demo_app, enqueue_demo
from windlass.cli.live_view import View
from windlass.cli.output_queue import Voice
from windlass.cli.reload import reload_on_change
from windlass.cli.shutdown import Asks, Stopper, asks_of
from windlass.cli.store_options import run
from windlass.config import DEFAULT_SLOTS, Settings, settings
from windlass.worker import WorkerConfig
from windlass.worker.supervisor import this_program


def dev(
    app: Annotated[
        str | None, typer.Argument(help="The application, as module:app; without one, a demo.")
    ] = None,
    *,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a .py file here changes.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="The port of the HTTP API (8642, or any that is free).")
    ] = None,
    supervised: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a worker, the dashboard and the HTTP API for development. Ctrl-C stops it.

    It takes every queue that the app's tasks use, and shows jobs as they
    run. Without an app it runs a demo with one job. The server lets in
    whoever is on this machine, until the first windlass keys create.
    """
    given = settings({"app": app, "port": port})
    if reload and supervised is None:
        words = [] if given["app"].value is None else [given["app"].value]
        words += [] if port is None else [f"--port={port}"]
        code = run(reload_on_change([*this_program(), "dev", *words]))
        if code:
            raise typer.Exit(code)
        return
    asks = None if supervised is None else asks_of(supervised)
    path = given["app"].value
    application = demo_app() if path is None else load_app(path)
    config = _config(application, given)
    if path is None:
        terminal.say(WELCOME)
    else:
        introduce(application, config)
    run(_serve(application, config, asks, given, demo=path is None), quick=True)


def _config(app: Windlass, given: Settings) -> WorkerConfig:
    """Every queue of the app, unless the settings name some."""
    config = worker_config(given)
    if given["queues"].given:
        return config
    slots = given["concurrency"].value or DEFAULT_SLOTS
    queues = {"default": slots} | {spec.options.queue: slots for spec in app.tasks}
    return replace(config, queues=queues)


async def _serve(
    app: Windlass, config: WorkerConfig, asks: Asks | None, given: Settings, *, demo: bool
) -> None:
    try:
        client = app.client()
        await client.store.ping()
        view = View(client, "Ctrl-C stops")
        async with view.showing():
            # Here, so that lines of the log come above the bars and not among them.
            logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", force=True)
            async with serving_here(app, given) as place:
                view.say(_where(place))
                if demo:
                    await enqueue_demo(app)
                await Stopper(app, app.worker(config), Voice(view.say), asks=asks).run()
    finally:
        await app.aclose()
    terminal.say("stopped")


def _where(place: str | None) -> str:
    if place is None:
        return "no dashboard here: it needs pip install 'windlass[server]'"
    return f"dashboard at {place}, HTTP API at {place}/api/jobs"
