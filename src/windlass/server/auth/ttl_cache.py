"""Cache of store lookups, with a time to live."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_ENTRIES = 10_000  # beyond it, the least recently loaded entry is evicted


class TtlCache(Generic[T]):
    """Caches the values of `load` by name, each for `ttl` seconds. Misses are not cached."""

    def __init__(self, load: Callable[[str], Awaitable[T | None]], ttl: float) -> None:
        self._load = load
        self._ttl = ttl
        self._entries: dict[str, tuple[float, T]] = {}  # start of the load, value

    async def get(self, name: str) -> T | None:
        entry = self._entries.get(name)
        now = time.monotonic()
        if entry is not None and now - entry[0] < self._ttl:
            return entry[1]
        if entry is not None:  # one caller reloads; concurrent ones use the old value
            self._entries[name] = (now, entry[1])
        try:
            value = await self._load(name)
        except BaseException:
            if entry is not None:
                self._entries[name] = entry
            raise
        self.forget(name)
        if value is not None:
            self._entries[name] = (now, value)  # the age counts from the start of the load
            if len(self._entries) > MAX_ENTRIES:
                del self._entries[next(iter(self._entries))]
        return value

    def forget(self, name: str) -> None:
        self._entries.pop(name, None)
