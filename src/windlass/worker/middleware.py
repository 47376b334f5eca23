"""What an application wraps around every enqueue and every run of a task."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from windlass.core.errors import ConfigurationError
from windlass.core.job.row import NewJob
from windlass.task_spec import where

if TYPE_CHECKING:
    from windlass.worker.context import Context

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
_Run: TypeAlias = "Callable[[Context, CallNext], Awaitable[Any]]"
_Enqueue: TypeAlias = Callable[[NewJob], NewJob]


class Middleware:
    """In the order of adding, the first outermost. One that raises fails that one call."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.around_runs = False
        self._enqueues: list[_Enqueue] = []

    def add(self, given: Any) -> None:
        """An object (or its class) with `run`, `enqueue` or both; or one function.

        An async function is a `run(ctx, call_next)`, a plain one an `enqueue(new_job)`.
        """
        if inspect.isroutine(given):
            asynchronous = inspect.iscoroutinefunction(given)
            run, enqueue = (given, None) if asynchronous else (None, given)
        else:
            thing = given() if isinstance(given, type) else given
            run, enqueue = getattr(thing, "run", None), getattr(thing, "enqueue", None)
        if run is None and enqueue is None:
            raise ConfigurationError(
                f"{given!r} is no middleware: it has neither `async def run(ctx, call_next)` "
                "nor `def enqueue(new_job)`"
            )
        _check(given, run, enqueue)
        if run is not None:
            self._runs.append(run)
            self.around_runs = True
        if enqueue is not None:
            self._enqueues.append(enqueue)

    def enqueue_all(self, jobs: list[NewJob]) -> list[NewJob]:
        return [self.enqueue(job) for job in jobs] if self._enqueues else jobs

    def enqueue(self, new: NewJob) -> NewJob:
        for hook in self._enqueues:
            try:
                changed: Any = hook(new)
            except Exception as error:
                error.add_note(f"the middleware at {where(hook)} refused to enqueue {new.task!r}")
                raise
            if not isinstance(changed, NewJob):
                raise ConfigurationError(
                    f"the middleware at {where(hook)} answered {changed!r:.80} to the enqueue of "
                    f"{new.task!r}; it must return the NewJob, changed or not"
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


def _check(given: Any, run: Any, enqueue: Any) -> None:
    if run is not None and not inspect.iscoroutinefunction(run):
        raise ConfigurationError(
            f"`run` of the middleware {given!r} must be `async def run(ctx, call_next)`"
        )
    if enqueue is not None and (not callable(enqueue) or inspect.iscoroutinefunction(enqueue)):
        raise ConfigurationError(
            f"`enqueue` of the middleware {given!r} must be a plain `def enqueue(new_job)`"
        )
