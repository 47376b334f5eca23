"""Calls about jobs that somebody's open transaction may hold: nobody else waits for those.

A gathered call waits for no lock. What it finds held it leaves out, and whoever asked for that asks
again, apart from all others, with no connection between two tries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from windlass.stores.coalescing import Gatherer

S = TypeVar("S")
T = TypeVar("T")
Run: TypeAlias = Callable[[Sequence[S]], Awaitable[list[T | None]]]
"""One answer per item; None for what is held, of which nothing was decided."""

SHORTEST = 0.005  # seconds, about, before the first further try
LONGEST = 0.1  # and between any two


class Patient(Generic[S, T]):
    """`again` makes the further tries; it is `run` unless that has a quicker way to begin with."""

    def __init__(self, run: Run[S, T], again: Run[S, T] | None = None) -> None:
        self._first = Gatherer[S, T | None](run)
        self._later = Gatherer[S, T | None](again or run)
        self._closing = asyncio.Event()

    async def __call__(self, items: Sequence[S], seconds: float) -> list[T | None]:
        """Try for so long; None for what was held all the time."""
        answers = await self._first(items)
        if all(answer is not None for answer in answers):
            return answers
        clock = asyncio.get_running_loop().time
        until, nap = clock() + seconds, SHORTEST
        while left := [place for place, answer in enumerate(answers) if answer is None]:
            if clock() >= until or await self._closes_within(nap):
                break
            nap = min(2 * nap, LONGEST)
            again = await self._later([items[place] for place in left])
            for place, answer in zip(left, again, strict=True):
                answers[place] = answer
        return answers

    async def _closes_within(self, nap: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(nap * random.uniform(0.5, 1)):  # noqa: S311
                await self._closing.wait()
        return self._closing.is_set()

    async def finish(self) -> None:
        """Wait for all that was called; whoever waits for what is held is told that it was."""
        self._closing.set()
        await self._first.finish()
        await self._later.finish()
