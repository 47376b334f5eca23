"""A small story on SQLite: progress, a retry, a worker killed in the middle, a cancel.

make demo
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from windlass import Context, Job, Windlass, WorkerConfig, fixed
from windlass.core.event import Event, EventType

# The workers below are processes of their own: they find the file by this variable.
PLACE = Path(os.environ.get("WINDLASS_DEMO") or tempfile.mkdtemp(prefix="windlass-"))
os.environ["WINDLASS_DEMO"] = str(PLACE)
app = Windlass(f"sqlite:///{PLACE}/demo.db")
LEASE = 2.0
BAR = 30


@app.task
async def make_video(ctx: Context, title: str) -> dict[str, str]:
    for stage in ("script", "voice", "visuals", "compose", "render"):
        ctx.stage(stage)
        for percent in range(25, 101, 25):
            await asyncio.sleep(0.05)
            ctx.progress(percent, f"{stage} of {title!r}")
        await ctx.flush()
    return {"file": f"{title}.mp4"}


@app.task(max_retries=3, backoff=fixed(0.2))
async def fetch(ctx: Context, url: str) -> str:
    if ctx.attempt == 1:
        raise ConnectionError(f"{url} did not answer")
    return f"{url}: 200"


@app.task
async def long_work(ctx: Context) -> list[str]:
    async def piece(name: str) -> str:
        await asyncio.sleep(0.1 if ctx.attempt > 1 or name != "third" else 60)
        return f"{name} by attempt {ctx.attempt}"

    return [await ctx.astep(name, piece, name) for name in ("first", "second", "third")]


@app.task
async def endless(ctx: Context) -> None:
    ctx.log("running until somebody cancels me")
    await asyncio.sleep(3600)


def start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "worker"])


async def work() -> None:
    logging.basicConfig(level=logging.ERROR)
    worker = app.worker(WorkerConfig(lease=LEASE, sweep=0.2))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


def bar(percent: int) -> str:
    full = percent * BAR // 100
    return "█" * full + "░" * (BAR - full)


def line(event: Event) -> str:
    data = event.data
    if event.type is EventType.STEP_PROGRESS:
        return f"  {bar(data['progressPct'])} {data['progressPct']:3}%  {data.get('stage') or ''}"
    parts = [str(data.get("status") or event.type)]
    if data.get("attempt"):
        parts.append(f"attempt {data['attempt']}")
    if data.get("error"):
        parts.append(f"after {data['error']['code']}")
    if data.get("step"):
        parts.append(f"step {data['step']}")
    return f"  {event.seq:3}  {event.type}: {', '.join(parts)}"


async def follow(job: Job[Any]) -> None:
    async for event in job.aevents():
        print(line(event), flush=True)


async def killed_worker(first: subprocess.Popen[bytes]) -> None:
    job = await long_work.aenqueue()
    seen = 0
    async for event in job.aevents():
        print(line(event), flush=True)
        seen = event.seq
        if event.data.get("step") == "second":
            break
    print("  … kill -9 of the worker, and another one started", flush=True)
    first.kill()
    first.wait()
    second = start_worker()
    try:
        async for event in job.aevents(after=seen):
            print(line(event), flush=True)
        print("  result:", await job.aresult())
        await canceled_job()
    finally:
        second.terminate()
        second.wait()


async def canceled_job() -> None:
    print("\n4. A job is canceled while it runs")
    job = await endless.aenqueue()
    async for event in job.aevents():
        print(line(event), flush=True)
        if event.data.get("status") == "running":
            await job.acancel("the demo is over")


async def story() -> None:
    worker = start_worker()
    try:
        print("1. A job with stages, followed live")
        video = await make_video.aenqueue(title="holiday")
        await follow(video)
        print("  result:", await video.aresult())
        print("\n2. A job that fails at first, and is retried")
        await follow(await fetch.aenqueue(url="example.org"))
        print("\n3. A worker killed in the middle; another resumes after the last finished step")
        await killed_worker(worker)
    finally:
        worker.kill()
        worker.wait()
    await app.aclose()
    print("\nAll of it was in one file: jobs, attempts, events. Nothing was lost.")
    print("Next: read examples/demo.py (the tasks are plain functions), then the README.")


def main() -> None:
    if sys.argv[1:] == ["worker"]:
        asyncio.run(work())
        return
    try:
        asyncio.run(story())
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
