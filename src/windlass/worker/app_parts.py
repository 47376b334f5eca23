"""What an app gives to its workers and servers: lifespan, middleware, workspaces, callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import (
    AbstractContextManager,
    nullcontext,
)
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import DEFAULT_STAGES, StageMap
from windlass.core.schedule import Schedule
from windlass.store import Store
from windlass.worker.lifespan import Lifespan
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.middleware import Middleware
from windlass.workspace import Workspaces

Enqueue: TypeAlias = Callable[[list[NewJob]], Awaitable[list[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """The parts of an app that its workers and servers use.

    `app` is the Windlass object; child processes import the same one. `enqueue` stores jobs at
    once and returns handles. `declared_schedules` returns the schedules of the app's code.
    `declare_limits` stores the limits of the app's code that the store does not have yet.
    `step_outages` logs store failures in steps of all jobs. `loop_context` wraps the worker's whole
    run on its event loop; it must not block.
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
