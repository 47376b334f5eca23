"""Workers for tests: quick to look, and gone when the test is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from windlass import Job, Windlass, Worker, WorkerConfig
from windlass.core.event import Event, EventType
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
PATIENCE = 20.0  # for what should take no time at all


def config(**values: Any) -> WorkerConfig:
    return WorkerConfig(**{"poll_interval": 0.01, "sweep_interval": 0.01, "grace": 5.0, **values})


def make_worker(app: Windlass, store: Store | None = None, **values: Any) -> Worker:
    own = store or app.client().store.twin()
    return Worker(own, app.tasks, app.codec, config(**values), app.hooks)


@asynccontextmanager
async def working(
    app: Windlass, store: Store | None = None, **values: Any
) -> AsyncIterator[Worker]:
    """A worker that runs during the block and is then stopped."""
    worker = make_worker(app, store, **values)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)


async def work_off(app: Windlass, store: Store | None = None, **values: Any) -> Worker:
    """Run a worker until nothing is left to do."""
    worker = make_worker(app, store, burst=True, **values)
    await asyncio.wait_for(worker.run(), PATIENCE)
    return worker


async def run_one(app: Windlass, job: Job[Any], **values: Any) -> JobRow:
    """The job's row after a worker has run it to its end."""
    async with working(app, **values):
        return (await job.await_end(PATIENCE)).row


async def events_of(job: Job[Any], *kinds: EventType) -> list[Event]:
    """The log of an ended job, or the events of these kinds in it."""
    return [event async for event in job.aevents() if not kinds or event.type in kinds]


async def until(job: Job[Any], wanted: Callable[[Event], bool]) -> Event:
    """Follow the job to the first event that is wanted."""
    async with asyncio.timeout(PATIENCE):
        async for event in job.aevents():
            if wanted(event):
                return event
    raise AssertionError("the job ended without it")


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not await look():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def happened() -> asyncio.Event:
    """What others wait for is there."""
    event = asyncio.Event()
    event.set()
    return event


def running(event: Event) -> bool:
    return event.data.get("status") == "running"


class Spy(WrappedStore):
    """Passes calls on; calls `look` with the verb before each, which may raise."""

    def __init__(self, store: Store, look: Callable[[str], None]) -> None:
        super().__init__(store)
        self._look = look

    def wrap(self, store: Store) -> Spy:
        return Spy(store, self._look)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self._look(verb)
        return await call()
