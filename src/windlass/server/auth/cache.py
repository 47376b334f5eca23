"""What the doorkeeper looked up, remembered for a moment."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MANY = 10_000  # things that are remembered; those found least recently are forgotten first


class Known(Generic[T]):
    """Things by their names, each taken to be as it was found for `trust` seconds."""

    def __init__(self, look_up: Callable[[str], Awaitable[T | None]], trust: float) -> None:
        self._look_up = look_up
        self._trust = trust
        self._found: dict[str, tuple[float, T]] = {}  # when it was asked for

    async def get(self, name: str) -> T | None:
        known = self._found.get(name)
        now = time.monotonic()
        if known is not None and now - known[0] < self._trust:
            return known[1]
        if known is not None:  # of a thousand streams, one asks; the others go by what is known
            self._found[name] = (now, known[1])
        try:
            found = await self._look_up(name)
        except BaseException:
            if known is not None:
                self._found[name] = known
            raise
        self.forget(name)
        if found is not None:
            self._found[name] = (now, found)  # of when it was asked for, not answered
            if len(self._found) > MANY:
                del self._found[next(iter(self._found))]
        return found

    def forget(self, name: str) -> None:
        self._found.pop(name, None)
