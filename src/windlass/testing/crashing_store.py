"""Store wrapper that crashes before or after the n-th call of a method, simulated or by SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeVar

from windlass.core.errors import InvalidArgumentError
from windlass.store import Store, StoreInsights
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """Simulated death of the process. A BaseException: no handler treats it as a task failure."""


def simulate_crash() -> None:
    """Raise SimulatedCrash in the caller."""
    raise SimulatedCrash


def kill_process() -> None:
    """Kill this process without handlers, cleanup or flush. For tests with real processes."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class _CrashState:
    """Shared by all handles of one process: they crash together."""

    remaining: int
    lock: Lock
    crashed: bool = False


class CrashingStore(WrappedStore):
    """Crashes before or after the n-th call of a method, counted over this handle and its twins.

    Every later call crashes too: a dead process writes nothing, not even in a `finally`.
    """

    def __init__(
        self,
        store: Store,
        method: str,
        nth: int = 1,
        when: Literal["before", "after"] = "before",
        crash: Callable[[], None] = simulate_crash,
    ) -> None:
        known = getattr(Store, method, None) or getattr(StoreInsights, method, None)
        if method == "tail" or not callable(known):
            raise InvalidArgumentError(f"{method!r} is not an awaitable method of a store")
        super().__init__(store)
        self._method = method
        self._when = when
        self._crash = crash
        self._state = _CrashState(nth, Lock())

    def wrap(self, store: Store) -> CrashingStore:
        twin = CrashingStore(store, self._method, when=self._when, crash=self._crash)
        twin._state = self._state
        return twin

    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        state = self._state
        if state.crashed and method == "close":
            return await call()  # the system closes the handles of a dead process
        reached = self._is_nth_call(method)
        if not (state.crashed or (reached and self._when == "before")):
            result = await call()
            if not (reached or state.crashed):
                return result
        state.crashed = True
        self._crash()
        raise AssertionError("the crash returned")

    def _is_nth_call(self, method: str) -> bool:
        if method != self._method:
            return False
        with self._state.lock:
            self._state.remaining -= 1
            return self._state.remaining == 0
