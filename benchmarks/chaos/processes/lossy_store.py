"""Store wrapper that loses requests and responses at random."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from benchmarks.chaos.ledger import note
from windlass.core.errors import StoreUnavailableError
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
LOST, RESPONSE_LOST = "request lost", "answer lost"
_SAFE = {"close", "migrate"}


class LossyStore(WrappedStore):
    """Of all calls, the part `lose` raises: half of them before, half after they were executed."""

    def __init__(self, store: Store, random: Random, lose: float) -> None:
        super().__init__(store)
        self._random = random
        self._lose = lose

    def wrap(self, store: Store) -> LossyStore:
        return LossyStore(store, self._random, self._lose)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        lot = self._random.random()
        if verb in _SAFE or lot >= self._lose:
            return await call()
        fault = LOST
        if lot < self._lose / 2:
            await call()
            fault = RESPONSE_LOST
        note("driver", fault=fault, verb=verb)
        raise StoreUnavailableError(f"{verb}: timed out ({fault})")
