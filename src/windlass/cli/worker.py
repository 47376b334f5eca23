"""`windlass worker`: run jobs until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.opening import run, sqlite_file, the_app
from windlass.config import settings
from windlass.core.state import State
from windlass.worker import Context, Worker, WorkerConfig

_ENDS = {State.RETRYING: "to be tried again", State.QUEUED: "given back"}
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def worker(
    app: Annotated[
        str | None, typer.Argument(help="The application, as module:app; else the setting app.")
    ] = None,
    *,
    queues: Annotated[
        str | None,
        typer.Option("--queues", "-Q", help="The queues, each with its slots: media=2,default=10."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Slots of a queue that names none (10).")
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is left to do.")] = False,
    max_jobs: Annotated[
        int | None, typer.Option(min=1, help="End when this many attempts have ended.")
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help='Overrules the leases of the tasks: "30s".')
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help='How long a stop waits for running jobs: "10s".')
    ] = None,
) -> None:
    """Run jobs. SIGTERM or Ctrl-C stops gracefully; a second one at once."""
    given = settings({"queues": queues, "concurrency": concurrency, "lease": lease, "grace": grace})
    slots = given["concurrency"].value
    config = WorkerConfig(
        queues={name: n or slots for name, n in given["queues"].value.items()},
        lease=given["lease"].value,
        grace=given["grace"].value,
        burst=burst,
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    application = the_app(app)
    run(_serve(application, config, max_jobs))


async def _serve(app: Windlass, config: WorkerConfig, max_jobs: int | None) -> None:
    """Run a worker, and tell what happens to it."""
    _introduce(app, config)
    try:
        await app.client().store.ping()  # a store that cannot be had is told at once
        worker = app.worker(config)
        if max_jobs is not None:
            _stop_after(max_jobs, app, worker)
        await _until_stopped(worker)
    finally:
        await app.aclose()
    ended = ", ".join(f"{n:,} {_ENDS.get(state, state)}" for state, n in worker.settled.items())
    terminal.say(f"worker stopped; attempts ended: {ended or 'none'}")


def _stop_after(number: int, app: Windlass, worker: Worker) -> None:
    """Stop it once so many attempts have ended; what runs beside the last may finish."""
    ended = 0

    async def count(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG001
        nonlocal ended
        try:
            return await call_next()
        finally:
            ended += 1
            if ended == number:
                worker.stop()

    app.middleware(count)


def _introduce(app: Windlass, config: WorkerConfig) -> None:
    path = sqlite_file(app.url)
    terminal.say(f"worker {config.name} on {app.url if path is None else path}")
    terminal.say(f"  queues  {', '.join(f'{name}={n}' for name, n in config.queues.items())}")
    names = sorted(spec.name for spec in app.tasks)
    terminal.say(f"  tasks   {', '.join(names) or 'none'}")
    if not names:
        terminal.warn("the app has no tasks; is the module that defines them imported?")
    elsewhere = sorted({spec.options.queue for spec in app.tasks} - set(config.queues))
    if elsewhere:
        terminal.warn(
            f"tasks of this app use the queues {', '.join(elsewhere)}, which this worker leaves "
            "alone; add them to -Q or start another worker for them"
        )
    if app.url.startswith("memory:"):
        terminal.warn(
            "memory: is seen by this process only, and its jobs end with it; "
            "no other process can hand it work: use sqlite:///jobs.db"
        )
    elif path is not None and not path.exists():
        terminal.warn(f"{path} is new and empty; is this the right directory?")


async def _until_stopped(worker: Worker) -> None:
    """The first signal asks it to finish, the second cancels; a third ends the process."""
    loop = asyncio.get_running_loop()
    running = loop.create_task(worker.run())
    asked = 0

    def on_signal() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            grace = worker.config.grace
            terminal.say(f"stopping: running jobs have {grace:g} s to end; once more: at once")
            worker.stop()
            return
        terminal.say("stopping at once: what still runs is given back, uncounted")
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        running.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await running
    except asyncio.CancelledError:
        if asked < 2:  # noqa: PLR2004 - the second signal
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
