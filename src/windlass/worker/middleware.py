"""Middleware of an application: wraps every enqueue and every run of a task."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from windlass.core.errors import ConfigurationError
from windlass.core.job.new_job import NewJob
from windlass.task_spec import source_location

if TYPE_CHECKING:
    from windlass.worker.context import Context

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
_Run: TypeAlias = "Callable[[Context, CallNext], Awaitable[Any]]"
_Enqueue: TypeAlias = Callable[[NewJob], NewJob]


class Middleware:
    """Middleware in the order of adding; the first is outermost.

    A middleware that raises fails only that call.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.has_run_hooks = False
        self.has_enqueue_hooks = False
        self._enqueues: list[_Enqueue] = []

    def add(self, middleware: Any) -> None:
        """Add an object (or its class) with `run`, `enqueue` or both; or one function.

        An async function becomes `run(ctx, call_next)`, a plain one `enqueue(new_job)`.
        """
        if inspect.isroutine(middleware):
            is_async = inspect.iscoroutinefunction(middleware)
            run, enqueue = (middleware, None) if is_async else (None, middleware)
        else:
            instance = middleware() if isinstance(middleware, type) else middleware
            run, enqueue = getattr(instance, "run", None), getattr(instance, "enqueue", None)
        if run is None and enqueue is None:
            raise ConfigurationError(
                f"{middleware!r} is not a middleware: it has neither "
                "`async def run(ctx, call_next)` nor `def enqueue(new_job)`"
            )
        _check(middleware, run, enqueue)
        if run is not None:
            self._runs.append(run)
            self.has_run_hooks = True
        if enqueue is not None:
            self._enqueues.append(enqueue)
            self.has_enqueue_hooks = True

    def enqueue(self, new: NewJob) -> NewJob:
        for hook in self._enqueues:
            try:
                changed: Any = hook(new)
            except Exception as error:
                error.add_note(
                    f"the middleware at {source_location(hook)} refused to enqueue {new.task!r}"
                )
                raise
            if not isinstance(changed, NewJob):
                raise ConfigurationError(
                    f"the middleware at {source_location(hook)} returned {changed!r:.80} for the "
                    f"enqueue of {new.task!r}; it must return the NewJob, changed or not"
                )
            new = changed
        return new

    async def run(self, context: Context, task: CallNext) -> Any:
        call = task
        for hook in reversed(self._runs):
            call = _around(hook, context, call)
        return await call()


def _around(hook: _Run, context: Context, call_next: CallNext) -> CallNext:
    async def call() -> Any:
        return await hook(context, call_next)

    return call


def _check(middleware: Any, run: Any, enqueue: Any) -> None:
    if run is not None and not inspect.iscoroutinefunction(run):
        raise ConfigurationError(
            f"`run` of the middleware {middleware!r} must be `async def run(ctx, call_next)`"
        )
    if enqueue is not None and (not callable(enqueue) or inspect.iscoroutinefunction(enqueue)):
        raise ConfigurationError(
            f"`enqueue` of the middleware {middleware!r} must be a plain `def enqueue(new_job)`"
        )
