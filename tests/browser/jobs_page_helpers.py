"""Helpers for the list tests: tasks with a chosen outcome, and many jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.browser.page_helpers import run_in_thread
from tests.server.conftest import WAIT_TIMEOUT, LiveServer, make_app, run_server, wait_for_file

from windlass import Context, Windlass, WorkerConfig
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.server.config import AuthMode, ServerConfig

AT_A_TIME = 1000
QUEUES = {"default": 4, "mail": 8, "media": 8}


def make(place: Path) -> Windlass:
    app = make_app(place)

    @app.task(name="send", queue="mail", max_retries=0)
    async def send(to: str) -> None:
        raise ConnectionError(f"{to} does not answer")

    @app.task(name="paint", queue="media", max_retries=0)
    async def paint(ctx: Context, gate: str) -> None:
        ctx.progress(40, "outlines")
        await ctx.flush()
        await wait_for_file(gate)
        ctx.progress(70, "colors")

    return app


@contextmanager
def serve_with_worker(place: Path) -> Iterator[LiveServer]:
    """Run a server with a short poll interval, and a worker of all queues."""
    config = ServerConfig(auth=AuthMode.LOCAL, list_poll_interval=0.05)
    with run_server(place, config, app=make(place)) as served, _worker(make(place)):
        yield served


@contextmanager
def _worker(app: Windlass) -> Iterator[None]:
    worker = app.worker(
        WorkerConfig(queues=QUEUES, poll_interval=0.02, sweep_interval=0.05, grace=0)
    )
    loop = asyncio.new_event_loop()

    async def work() -> None:
        await worker.run()
        await app.aclose()

    thread = Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(worker.stop)
        thread.join(WAIT_TIMEOUT)
        loop.close()


def enqueue_many(app: Windlass, count: int) -> None:
    """Enqueue many jobs."""
    run_in_thread(lambda: app.sync.call(_enqueue_many(app, count)))


async def _enqueue_many(app: Windlass, count: int) -> None:
    store = app.client().store
    for start in range(0, count, AT_A_TIME):
        await store.enqueue([_job(start + n) for n in range(min(AT_A_TIME, count - start))])


def _job(number: int) -> NewJob:
    tags = (f"batch-{number // AT_A_TIME}",)
    owner = "ann" if number % 2 else "bob"
    return NewJob(id=uuid7(), task="add", queue="bulk", payload=b'{"a":1}', tags=tags, owner=owner)
