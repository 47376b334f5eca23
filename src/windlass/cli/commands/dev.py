"""`windlass dev`: worker, dashboard and HTTP API for development."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import load_app
from windlass.cli.commands.serve import serve_locally
from windlass.cli.commands.worker import print_startup, worker_config
from windlass.cli.demo_app import WELCOME, demo_app, enqueue_demo
from windlass.cli.event_loop import run
from windlass.cli.live_job_list import LiveJobList
from windlass.cli.worker_process.background_printer import BackgroundPrinter
from windlass.cli.worker_process.reload import reload_on_change
from windlass.cli.worker_process.stop_requests import StopRequests, supervisor_requests
from windlass.cli.worker_process.worker_runner import WorkerRunner
from windlass.settings import DEFAULT_SLOTS, Settings, load_settings
from windlass.worker import WorkerConfig
from windlass.worker.supervisor import windlass_command


def dev(
    app: Annotated[
        str | None, typer.Argument(help="The app, as module:app; without it, a demo runs.")
    ] = None,
    *,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Reload when a .py file in the working directory changes."),
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Port of the HTTP API (8642, or any free port).")
    ] = None,
    supervised: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a worker, the dashboard and the HTTP API for development. Ctrl-C stops it.

    Consumes every queue that the app's tasks use, and shows running jobs.
    Without an app it runs a demo with one job. The server accepts local
    requests without a key until the first windlass keys create.
    """
    found = load_settings({"app": app, "port": port})
    if reload and supervised is None:
        arguments = [] if found["app"].value is None else [found["app"].value]
        arguments += [] if port is None else [f"--port={port}"]
        code = run(reload_on_change([*windlass_command(), "dev", *arguments]))
        if code:
            raise typer.Exit(code)
        return
    requests = None if supervised is None else supervisor_requests(supervised)
    path = found["app"].value
    application = demo_app() if path is None else load_app(path)
    config = _config(application, found)
    if path is None:
        terminal.info(WELCOME)
    else:
        print_startup(application, config)
    run(_run_dev(application, config, requests, found, demo=path is None), fast=True)


def _config(app: Windlass, found: Settings) -> WorkerConfig:
    """Consume every queue of the app, unless the settings name queues."""
    config = worker_config(found)
    if found["queues"].is_set:
        return config
    slots = found["concurrency"].value or DEFAULT_SLOTS
    queues = {"default": slots} | {spec.options.queue: slots for spec in app.tasks}
    return replace(config, queues=queues)


async def _run_dev(
    app: Windlass,
    config: WorkerConfig,
    requests: StopRequests | None,
    found: Settings,
    *,
    demo: bool,
) -> None:
    try:
        client = app.client()
        await client.store.ping()
        view = LiveJobList(client, "Press Ctrl-C to stop")
        async with view.showing():
            # Configured here, so that log lines are printed above the bars.
            logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", force=True)
            async with serve_locally(app, found) as address:
                view.print(_server_line(address))
                if demo:
                    await enqueue_demo(app)
                output = BackgroundPrinter(view.print)
                await WorkerRunner(app, app.worker(config), output, requests=requests).run()
    finally:
        await app.aclose()
    terminal.info("Stopped")


def _server_line(address: str | None) -> str:
    if address is None:
        return "No dashboard: install it with pip install 'windlass[server]'"
    return f"Dashboard at {address}, HTTP API at {address}/api/jobs"
