"""What an application brings along for its workers, beside its tasks."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from windlass.core.errors import ConfigurationError
from windlass.core.job.progress import DEFAULT_STAGES, StageMap
from windlass.core.job.row import NewJob
from windlass.core.schedule import Schedule
from windlass.store import Store
from windlass.task_spec import where
from windlass.worker.loops.outage_log import Trouble
from windlass.worker.middleware import Middleware
from windlass.workspace import Workspaces

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
Enqueue: TypeAlias = Callable[[list[NewJob]], Awaitable[list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """`app` is what the tasks belong to; child processes look for the same one.

    `enqueue` stores jobs at once and answers with handles on them. `declared` are the schedules of
    its code; `declare` stores the limits of it that a store has not heard of. `trouble` is of all
    jobs' steps. `on_loop` surrounds a worker's life on its event loop, on which nothing may block.
    """

    app: Any = None
    stages: StageMap = DEFAULT_STAGES
    lifespan: Lifespan | None = None
    middleware: Middleware = field(default_factory=Middleware)
    workspaces: Workspaces | None = None
    enqueue: Enqueue | None = None
    declared: Callable[[], Iterable[Schedule]] = tuple
    declare: Callable[[Store], Awaitable[None]] | None = None
    trouble: Trouble = field(default_factory=lambda: Trouble("storing steps"))
    on_loop: Callable[[asyncio.AbstractEventLoop], AbstractContextManager[None]] = lambda _: (
        nullcontext()
    )


def as_lifespan(given: Callable[[], Any]) -> Lifespan:
    """From an async generator function with one `yield`, or what makes an async context manager."""
    if inspect.isasyncgenfunction(given):
        return asynccontextmanager(given)
    if not callable(given):
        raise ConfigurationError(f"the lifespan is {given!r}; it must be a function that yields")
    return given


@asynccontextmanager
async def living(lifespan: Lifespan | None) -> AsyncIterator[Any]:
    """The worker's state while it lives. A failure says when it came and what became of jobs."""
    if lifespan is None:
        yield None
        return
    try:
        manager = lifespan()
        state = await manager.__aenter__()
    except Exception as error:
        raise ConfigurationError(
            f"the lifespan at {where(lifespan)} failed to start: {type(error).__name__}: {error}; "
            "the worker stops, no job was claimed"
        ) from error
    try:
        yield state
    except BaseException:
        await manager.__aexit__(*sys.exc_info())
        raise
    try:
        await manager.__aexit__(None, None, None)
    except Exception as error:
        raise ConfigurationError(
            f"the lifespan at {where(lifespan)} failed to end: {type(error).__name__}: {error}; "
            "no job is lost, each was settled or given back before"
        ) from error
