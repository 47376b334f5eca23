"""`windlass worker`: run jobs until told to stop, in this process or in several."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.output_queue import Voice
from windlass.cli.recycling import Limits
from windlass.cli.shutdown import Asks, Stopper, asks_of
from windlass.cli.store_options import run, the_app
from windlass.config import Settings, settings
from windlass.core.job.state import State
from windlass.store import Retention
from windlass.stores import file_of, public_url
from windlass.worker import WorkerConfig
from windlass.worker.supervisor import RECYCLED, Supervisor, this_program

_ENDS = {State.RETRYING: "to be tried again", State.QUEUED: "given back"}


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
    processes: Annotated[
        int | None, typer.Option(help="Run so many workers, and start again what dies.")
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is left to do.")] = False,
    max_jobs: Annotated[
        int | None, typer.Option(help="End when this many attempts have ended.")
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(help='End when it holds more than this: "512M".')
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help='Overrules the leases of the tasks: "30s".')
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help='How long a stop waits for running jobs: "10s".')
    ] = None,
    supervised: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs. SIGTERM or Ctrl-C stops gracefully; a second one at once.

    With --processes, a worker that reaches --max-jobs or --max-memory is replaced by a fresh one.
    """
    arguments = {
        "queues": queues,
        "concurrency": concurrency,
        "max_jobs": max_jobs,
        "max_memory": max_memory,
        "lease": lease,
        "grace": grace,
    }
    given = settings(arguments | {"app": app, "processes": processes})
    if supervised is None and given["processes"].given:
        _supervise(given, arguments, burst=burst)
    else:
        _work(given, supervised, burst=burst)


def _work(given: Settings, supervised: str | None, *, burst: bool) -> None:
    """Be a worker until told to stop; `supervised` is what a supervisor gave along."""
    asks = None if supervised is None else asks_of(supervised)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    application = the_app(given["app"].value)
    config = worker_config(given, burst=burst)
    introduce(application, config, whole=supervised is None or supervised.endswith(":1"))
    limits = Limits(given["max_jobs"].value, given["max_memory"].value)
    # A job leaves a few dozen objects behind and no cycle: to look for one every 700 objects takes
    # a tenth of a busy worker's time (2026-11).
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    voice = Voice()
    recycled = run(serve(application, config, limits, voice, asks), quick=True)
    code = RECYCLED if recycled and supervised is not None else 0
    voice.leave(code)
    raise typer.Exit(code)


def worker_config(given: Settings, *, burst: bool = False) -> WorkerConfig:
    slots = given["concurrency"].value
    kept = ("succeeded", "canceled", "failed", "log")
    return WorkerConfig(
        queues={name: n or slots for name, n in given["queues"].value.items()},
        lease=given["lease"].value,
        grace=given["grace"].value,
        burst=burst,
        retention=Retention(**{name: given[f"keep_{name}"].value for name in kept}),
    )


def _supervise(given: Settings, arguments: Mapping[str, object], *, burst: bool) -> None:
    """Each worker gets the arguments of this one, and reads the other settings for itself."""
    number, app = given["processes"].value, given["app"].value
    words = [
        *([app] if app else []),
        *(
            f"--{name.replace('_', '-')}={value}"
            for name, value in arguments.items()
            if value is not None
        ),
        *(["--burst"] if burst else []),
    ]
    kept = "1 worker" if number == 1 else f"{number} workers"
    terminal.say(f"keeping {kept} of {app or 'the app'} alive, each a process of its own")
    voice = Voice()
    supervisor = Supervisor(
        [*this_program(), "worker", *words],
        number,
        grace=given["grace"].value,
        burst=burst,
        say=voice.say,
    )
    code = run(supervisor.run())
    if not code:
        voice.say("all workers have ended")
    voice.leave(code)
    raise typer.Exit(code)


async def serve(
    app: Windlass, config: WorkerConfig, limits: Limits, voice: Voice, asks: Asks | None
) -> bool:
    """Run a worker, and tell what happens to it; answers whether it ended by a limit."""
    recycled = False
    try:
        limits.count(app)
        worker = app.worker(config)
        stopper = Stopper(app, worker, voice, asks=asks, quiet=asks is not None)

        def reached(what: str) -> None:
            nonlocal recycled
            recycled = True
            worker.stop(patient=True)  # before another job begins; what runs is not cut short
            voice.say(f"worker {config.name} ends: {what}")

        watching = asyncio.create_task(limits.run(worker, reached))
        watching.add_done_callback(lambda _: stopper.finish())  # if too large to begin with
        try:
            await stopper.run()
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        if not watching.cancelled() and (error := watching.exception()) is not None:
            raise error
    finally:
        await app.aclose()
    ended = ", ".join(f"{n:,} {_ENDS.get(state, state)}" for state, n in worker.settled.items())
    voice.say(f"worker {config.name} stopped; attempts ended: {ended or 'none'}")
    return recycled


def introduce(app: Windlass, config: WorkerConfig, *, whole: bool = True) -> None:
    """What it is and takes, and what looks wrong; of several alike, one tells the whole story."""
    path = file_of(app.url)
    terminal.say(f"worker {config.name} on {public_url(app.url) if path is None else path}")
    if not whole:
        return
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
