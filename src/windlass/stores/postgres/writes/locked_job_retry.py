"""Retries of writes to jobs that an open transaction may have locked.

A coalesced call waits for no lock: it skips locked jobs. The callers of these retry them
separately, and hold no connection between two tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from windlass.stores.coalescer import Coalescer

S = TypeVar("S")
T = TypeVar("T")
Run: TypeAlias = Callable[[Sequence[S]], Awaitable[list[T | None]]]
"""Returns one result per item; None for a locked item, for which nothing was decided."""

MIN_DELAY = 0.005  # seconds before the first retry, at most
MAX_DELAY = 0.1  # seconds between two retries, at most


class LockedJobRetry(Generic[S, T]):
    """Runs calls, and retries locked items with `retry`, or with `run` if there is none."""

    def __init__(self, run: Run[S, T], retry: Run[S, T] | None = None) -> None:
        self._first = Coalescer[S, T | None](run)
        self._retry = Coalescer[S, T | None](retry or run)
        self._closing = asyncio.Event()

    async def __call__(self, items: Sequence[S], seconds: float) -> list[T | None]:
        """Retry for `seconds`; return None for items that stayed locked."""
        results = await self._first(items)
        if all(result is not None for result in results):
            return results
        clock = asyncio.get_running_loop().time
        until, delay = clock() + seconds, MIN_DELAY
        while locked := [index for index, result in enumerate(results) if result is None]:
            if clock() >= until or await self._closed_within(delay):
                break
            delay = min(2 * delay, MAX_DELAY)
            retried = await self._retry([items[index] for index in locked])
            for index, result in zip(locked, retried, strict=True):
                results[index] = result
        return results

    async def _closed_within(self, delay: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay * random.uniform(0.5, 1)):  # noqa: S311
                await self._closing.wait()
        return self._closing.is_set()

    async def finish(self) -> None:
        """Wait for running calls, and stop retries: their locked items return None."""
        self._closing.set()
        await self._first.finish()
        await self._retry.finish()
