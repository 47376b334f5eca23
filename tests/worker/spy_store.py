"""A store for tests that observes each call, and may fail it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class SpyStore(WrappedStore):
    """Calls `on_call` with the verb before each call of the store; `on_call` may raise."""

    def __init__(self, store: Store, on_call: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(store)
        self._on_call = on_call

    def wrap(self, store: Store) -> SpyStore:
        return SpyStore(store, self._on_call)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self._on_call(verb)
        return await call()
