"""A store that counts calls, and can hold them back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from threading import Event
from typing import TypeVar

from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class RecordingStore(WrappedStore):
    """Counts started and running calls; calls of the verbs in `held` wait until `free` is set."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.held = {"get"}
        self.free = Event()
        self.free.set()

    def wrap(self, store: Store) -> RecordingStore:
        return self

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[verb] += 1
        self.running[verb] += 1
        while verb in self.held and not self.free.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        self.running[verb] -= 1
        return await call()
