"""The lifespan of an application: setup before the first job, cleanup after the last."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
)
from typing import Any, TypeAlias

from windlass.core.errors import ConfigurationError
from windlass.task_spec import source_location

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


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
