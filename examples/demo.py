"""Demo on SQLite: live progress, a retry, a killed worker, a cancel. Run it with `make demo`."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from windlass import Context, Job, Windlass, WorkerConfig, fixed
from windlass.core.event import Event, EventType

# The worker processes find the directory through this variable.
DIRECTORY = Path(os.environ.get("WINDLASS_DEMO") or tempfile.mkdtemp(prefix="windlass-"))
os.environ["WINDLASS_DEMO"] = str(DIRECTORY)
LEASE = 2.0  # seconds; short, so that the demo rescues the job quickly (default: 30 s)
FRAME_SIZE = 160  # pixels
CANCEL_AT = 40  # percent
console = Console(highlight=False)
app = Windlass(
    f"sqlite:///{DIRECTORY}/demo.db",
    data=DIRECTORY / "data",
    stages={
        "plan": ("planning", (0, 5)),
        "draw": ("drawing", (5, 90)),
        "pack": ("packing", (90, 100)),
    },
)


# -- the tasks: plain functions


def draw(number: int) -> bytes:
    """Return one frame of circular waves as a grayscale PGM image."""
    middle = FRAME_SIZE / 2
    rows = range(FRAME_SIZE)
    pixels = bytes(
        int(127 + 127 * math.sin(math.hypot(x - middle, y - middle) / 4 - number / 3))
        for y in rows
        for x in rows
    )
    return b"P5 %d %d 255\n" % (FRAME_SIZE, FRAME_SIZE) + pixels


@app.task
def make_film(ctx: Context, title: str, frames: int) -> dict[str, Any]:
    """Draw frames into the workspace of the job and compress them into one file."""
    ctx.stage("plan")
    ctx.stage("draw")
    for number in range(frames):
        (ctx.workspace / f"{number:03}.pgm").write_bytes(draw(number))
        ctx.progress(100 * (number + 1) / frames, f"frame {number + 1} of {frames}")
    ctx.stage("pack")
    film = DIRECTORY / f"{title}.film"
    pictures = sorted(ctx.workspace.glob("*.pgm"))
    film.write_bytes(zlib.compress(b"".join(picture.read_bytes() for picture in pictures)))
    ctx.artifact(title, film.as_uri(), film.stat().st_size)
    return {"file": film.name, "bytes": film.stat().st_size}


@app.task(max_retries=3, backoff=fixed("200ms"))
async def fetch(ctx: Context, url: str) -> str:
    if ctx.attempt == 1:
        raise ConnectionError(f"{url} did not answer")
    return f"{url}: 200"


@app.task
async def chapters(ctx: Context) -> list[str]:
    """Run three steps; the first attempt never completes the third."""

    async def write(name: str) -> str:
        await asyncio.sleep(60 if name == "third" and ctx.attempt == 1 else 0.2)
        return f"{name} by attempt {ctx.attempt}"

    return [await ctx.astep(name, write, name) for name in ("first", "second", "third")]


@app.task
async def long_copy(ctx: Context) -> None:
    """Write files for long enough to be canceled."""
    for number in range(100):
        (ctx.workspace / f"{number:04}.tmp").write_bytes(b"x" * 1000)
        ctx.progress(number, f"{number + 1} files written")
        await asyncio.sleep(0.05)


# -- a worker process


def start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "worker"])


async def run_worker() -> None:
    logging.basicConfig(level=logging.ERROR)
    worker = app.worker(WorkerConfig(lease=LEASE, sweep_interval=0.2))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


# -- the demo


def format_event(event: Event) -> str:
    data = event.data
    if event.type is EventType.STEP_PROGRESS:
        return f"  {data['progressPct']:3}%  {data.get('phase') or ''}  {data.get('message', '')}"
    parts = [str(data.get("status") or data.get("name") or data.get("reason"))]
    if data.get("attempt"):
        parts.append(f"attempt {data['attempt']}")
    if data.get("error"):
        parts.append(f"after {data['error']['code']}")
    if data.get("step"):
        parts.append(f"step {data['step']}")
    return f"  {event.seq:3}  {event.type}: {', '.join(parts)}"


async def follow(
    job: Job[Any], after: int = 0, until: Callable[[Event], bool] = lambda _: False
) -> int:
    """Print events as they arrive; in a terminal, show progress as a bar."""
    bars = Progress(
        TextColumn(" "), BarColumn(36), TaskProgressColumn(), TextColumn("{task.description}"),
        console=console, transient=False, disable=not console.is_terminal,
    )  # fmt: skip
    seen = after
    with bars:
        bar: Any = None
        async for event in job.aevents(after=after):
            seen = event.seq
            if event.type is EventType.STEP_PROGRESS and console.is_terminal:
                bar = bars.add_task("", total=100) if bar is None else bar
                description = f"{event.data.get('phase') or ''} {event.data.get('message', '')}"
                bars.update(bar, completed=event.data["progressPct"], description=description)
            else:
                console.print(format_event(event), soft_wrap=True)
            if bar is not None and event.type is EventType.JOB_COMPLETED:
                bars.update(bar, completed=100, description="done")
            if until(event):
                break
    return seen


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


async def staged_job() -> None:
    heading("1. A job with stages, followed live while a worker in another process runs it")
    film = await make_film.aenqueue("waves", frames=120)
    await follow(film)
    console.print(f"  result: {await film.aresult()}")


async def retried_job() -> None:
    heading("2. A job that fails at first, and is retried by its policy")
    await follow(await fetch.aenqueue("example.org"))


async def killed_worker(worker: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    heading("3. A worker killed with -9; another resumes after the last completed step")
    job = await chapters.aenqueue()
    seen = await follow(job, until=lambda event: event.data.get("step") == "second")
    console.print(f"  … kill -9 worker {worker.pid}, then start another", soft_wrap=True)
    worker.kill()
    worker.wait()
    second = start_worker()
    await follow(job, after=seen)
    console.print(f"  result: {await job.aresult()}", soft_wrap=True)
    return second


async def canceled_job() -> None:
    heading("4. A job is canceled while it runs, and its files are cleaned up")
    job = await long_copy.aenqueue()
    workspace = DIRECTORY / "data" / "temp" / str(job.id)
    seen = await follow(job, until=lambda event: event.data.get("progressPct", 0) >= CANCEL_AT)
    console.print(f"  its workspace holds {len(list(workspace.iterdir()))} files; canceling it")
    await job.acancel("the demo is over")
    await follow(job, after=seen)
    console.print(f"  its workspace is {'still there' if workspace.exists() else 'gone'}")


async def run_demo() -> None:
    worker = start_worker()
    try:
        await staged_job()
        await retried_job()
        worker = await killed_worker(worker)
        await canceled_job()
    finally:
        worker.terminate()
        worker.wait()
        await app.aclose()
    console.print(
        "\nOne SQLite file held all jobs, attempts, steps and events. Nothing was lost.\n"
        "No job finished twice, and the killed worker cost one step.\n\n"
        "[bold]Next:[/] read examples/demo.py (the tasks are plain functions), then\n"
        "docs/tutorial.md. For a live view in this terminal: .venv/bin/windlass dev",
        soft_wrap=True,
    )


def main() -> None:
    if sys.argv[1:] == ["worker"]:
        asyncio.run(run_worker())
        return
    try:
        asyncio.run(run_demo())
    finally:
        shutil.rmtree(DIRECTORY)


if __name__ == "__main__":
    main()
