"""`windlass worker`: runs jobs, in this process or in several."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from typing import Annotated

import typer

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import require_app
from windlass.cli.event_loop import run
from windlass.cli.worker_process.background_printer import BackgroundPrinter
from windlass.cli.worker_process.stop_requests import StopRequests, supervisor_requests
from windlass.cli.worker_process.worker_recycler import WorkerRecycler
from windlass.cli.worker_process.worker_runner import WorkerRunner
from windlass.core.job.state import State
from windlass.settings import Settings, load_settings
from windlass.store import Retention
from windlass.stores import public_url, sqlite_path
from windlass.worker import WorkerConfig
from windlass.worker.supervisor import RECYCLED, Supervisor, windlass_command

_OUTCOMES = {State.RETRYING: "retried", State.QUEUED: "requeued"}


def worker(
    app: Annotated[
        str | None, typer.Argument(help="The app, as module:app (default: the `app` setting).")
    ] = None,
    *,
    queues: Annotated[
        str | None,
        typer.Option("--queues", "-Q", help="Queues with their slots: media=2,default=10."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Slots of each queue that has no number in --queues (10).")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of worker processes (restarted when they die).")
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when queues are empty.")] = False,
    max_jobs: Annotated[int | None, typer.Option(help="Exit after this many attempts.")] = None,
    max_memory: Annotated[
        str | None, typer.Option(help='Exit when memory use exceeds this: "512M".')
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help='Override the leases of the tasks: "30s".')
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help='Shutdown timeout for running jobs: "10s".')
    ] = None,
    supervised: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run jobs. SIGTERM or Ctrl-C shuts down gracefully; a second one forces it.

    With --processes, a worker that reaches --max-jobs or --max-memory is replaced.
    """
    arguments = {
        "queues": queues,
        "concurrency": concurrency,
        "max_jobs": max_jobs,
        "max_memory": max_memory,
        "lease": lease,
        "grace": grace,
    }
    found = load_settings(arguments | {"app": app, "processes": processes})
    if supervised is None and found["processes"].is_set:
        _supervise(found, arguments, burst=burst)
    else:
        _run_worker(found, supervised, burst=burst)


def _run_worker(found: Settings, supervised: str | None, *, burst: bool) -> None:
    """Run a worker until it stops; `supervised` is the option that a supervisor adds."""
    requests = None if supervised is None else supervisor_requests(supervised)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    application = require_app(found["app"].value)
    config = worker_config(found, burst=burst)
    print_startup(application, config, full=supervised is None or supervised.endswith(":1"))
    recycler = WorkerRecycler(found["max_jobs"].value, found["max_memory"].value)
    # A job leaves a few dozen objects and no cycles: a collection every 700 objects takes a tenth
    # of a busy worker's time (2026-11).
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    output = BackgroundPrinter()
    recycled = run(run_until_stopped(application, config, recycler, output, requests), fast=True)
    code = RECYCLED if recycled and supervised is not None else 0
    output.exit_if_blocked(code)
    raise typer.Exit(code)


def worker_config(found: Settings, *, burst: bool = False) -> WorkerConfig:
    slots = found["concurrency"].value
    kinds = ("succeeded", "canceled", "failed", "log")
    return WorkerConfig(
        queues={name: count or slots for name, count in found["queues"].value.items()},
        lease=found["lease"].value,
        grace=found["grace"].value,
        burst=burst,
        retention=Retention(**{name: found[f"keep_{name}"].value for name in kinds}),
    )


def _supervise(found: Settings, arguments: Mapping[str, object], *, burst: bool) -> None:
    """Run the supervisor. Workers get the same options and read other settings themselves."""
    number, app = found["processes"].value, found["app"].value
    options = [
        *([app] if app else []),
        *(
            f"--{name.replace('_', '-')}={value}"
            for name, value in arguments.items()
            if value is not None
        ),
        *(["--burst"] if burst else []),
    ]
    count = "1 worker process" if number == 1 else f"{number} worker processes"
    terminal.info(f"Supervising {count} for {app or 'the app'}")
    output = BackgroundPrinter()
    supervisor = Supervisor(
        [*windlass_command(), "worker", *options],
        number,
        grace=found["grace"].value,
        burst=burst,
        report=output.print,
    )
    code = run(supervisor.run())
    if not code:
        output.print("All workers stopped")
    output.exit_if_blocked(code)
    raise typer.Exit(code)


async def run_until_stopped(
    app: Windlass,
    config: WorkerConfig,
    recycler: WorkerRecycler,
    output: BackgroundPrinter,
    requests: StopRequests | None,
) -> bool:
    """Run a worker and report its end; return whether it reached a limit."""
    recycled = False
    try:
        recycler.install(app)
        worker = app.worker(config)
        supervised = requests is not None
        runner = WorkerRunner(app, worker, output, requests=requests, quiet=supervised)

        def on_reached(limit: str) -> None:
            nonlocal recycled
            recycled = True
            worker.stop(unbounded=True)  # claim no more jobs; running ones may finish
            output.print(f"Worker {config.name} exits: {limit}")

        limit_check = asyncio.create_task(recycler.run(worker, on_reached))
        limit_check.add_done_callback(lambda _: runner.finish())  # if too large from the start
        try:
            await runner.run()
        finally:
            limit_check.cancel()
            await asyncio.wait({limit_check})
        if not limit_check.cancelled() and (error := limit_check.exception()) is not None:
            raise error
    finally:
        await app.aclose()
    counts = [f"{count:,} {_OUTCOMES.get(state, state)}" for state, count in worker.settled.items()]
    output.print(f"Worker {config.name} stopped; processed: {', '.join(counts) or 'none'}")
    return recycled


def print_startup(app: Windlass, config: WorkerConfig, *, full: bool = True) -> None:
    """Print name and store; with `full` also queues, tasks and warnings."""
    path = sqlite_path(app.url)
    terminal.info(f"Worker {config.name} on {public_url(app.url) if path is None else path}")
    if not full:
        return
    terminal.info(
        f"  queues  {', '.join(f'{name}={slots}' for name, slots in config.queues.items())}"
    )
    names = sorted(spec.name for spec in app.tasks)
    terminal.info(f"  tasks   {', '.join(names) or 'none'}")
    if not names:
        terminal.warn("the app has no tasks; import the modules that define them")
    unconsumed = sorted({spec.options.queue for spec in app.tasks} - set(config.queues))
    if unconsumed:
        terminal.warn(
            f"this worker does not consume queues {', '.join(unconsumed)}, which tasks of the app "
            "use; add them to -Q or start another worker"
        )
    if app.url.startswith("memory:"):
        terminal.warn(
            "memory: jobs are visible only in this process and lost when it ends; "
            "use sqlite:///jobs.db"
        )
    elif path is not None and not path.exists():
        terminal.warn(
            f"{path} does not exist yet and will be created; is this the right directory?"
        )
