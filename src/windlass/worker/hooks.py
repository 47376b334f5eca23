"""Hooks that an application gives its workers, in addition to its tasks."""

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
from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import DEFAULT_STAGES, StageMap
from windlass.core.schedule import Schedule
from windlass.store import Store
from windlass.task_spec import source_location
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.middleware import Middleware
from windlass.workspace import Workspaces

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
Enqueue: TypeAlias = Callable[[list[NewJob]], Awaitable[list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppHooks:
    """Callbacks and settings of one application.

    `app` owns the tasks; child processes import the same object. `enqueue` stores jobs at once and
    returns handles. `declared_schedules` returns the schedules of the app's code. `declare_limits`
    stores the limits of the app's code that the store does not have yet. `step_outages` logs store
    failures in steps of all jobs. `loop_context` wraps the worker's whole run on its event loop;
    it must not block.
    """

    app: Any = None
    stages: StageMap = DEFAULT_STAGES
    lifespan: Lifespan | None = None
    middleware: Middleware = field(default_factory=Middleware)
    workspaces: Workspaces | None = None
    enqueue: Enqueue | None = None
    declared_schedules: Callable[[], Iterable[Schedule]] = tuple
    declare_limits: Callable[[Store], Awaitable[None]] | None = None
    step_outages: OutageLog = field(default_factory=lambda: OutageLog("Storing steps"))
    loop_context: Callable[[asyncio.AbstractEventLoop], AbstractContextManager[None]] = lambda _: (
        nullcontext()
    )


def as_lifespan(function: Callable[[], Any]) -> Lifespan:
    """Accept an async generator function with one `yield`, or a context manager factory."""
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if not callable(function):
        raise ConfigurationError(f"the lifespan is {function!r}; it must be a function that yields")
    return function


@asynccontextmanager
async def lifespan_state(lifespan: Lifespan | None) -> AsyncIterator[Any]:
    """Yield the worker's state between startup and shutdown of the lifespan.

    An error in either phase becomes a ConfigurationError that names the phase.
    """
    if lifespan is None:
        yield None
        return
    try:
        manager = lifespan()
        state = await manager.__aenter__()
    except Exception as error:
        raise ConfigurationError(
            f"the lifespan at {source_location(lifespan)} failed to start: "
            f"{type(error).__name__}: {error}; the worker stops, no job was claimed"
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
            f"the lifespan at {source_location(lifespan)} failed to end: "
            f"{type(error).__name__}: {error}; no job is lost: each was settled or requeued before"
        ) from error
