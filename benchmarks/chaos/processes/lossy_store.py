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
REQUEST_LOST, RESPONSE_LOST = "request lost", "response lost"
_NEVER_LOST = {"close", "migrate"}


class LossyStore(WrappedStore):
    """Raises in the share `loss` of all calls: half of them before, half after their execution."""

    def __init__(self, store: Store, random: Random, loss: float) -> None:
        super().__init__(store)
        self._random = random
        self._loss = loss

    def wrap(self, store: Store) -> LossyStore:
        return LossyStore(store, self._random, self._loss)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        draw = self._random.random()
        if verb in _NEVER_LOST or draw >= self._loss:
            return await call()
        fault = REQUEST_LOST
        if draw < self._loss / 2:
            await call()
            fault = RESPONSE_LOST
        note("driver", fault=fault, verb=verb)
        raise StoreUnavailableError(f"{verb}: timed out ({fault})")
