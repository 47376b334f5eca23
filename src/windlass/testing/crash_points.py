"""Dying at a chosen point: around the n-th call of a verb, in play or in earnest."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal, TypeVar

from windlass.core.errors import InvalidArgumentError
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process is gone. Not an Exception, so that no handler takes it for a task's failure."""


def collapse() -> None:
    """Die in play: the caller is unwound, and the store answers it no more."""
    raise SimulatedCrash


def die() -> None:
    """Die in earnest: no handler, no cleanup, nothing flushed. For tests with real processes."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class _Fate:
    """Shared by the handles of one process, which die together."""

    left: int
    lock: Lock
    dead: bool = False


class CrashPoint(WrappedStore):
    """Crashes before or after the n-th call of a verb, counted over this handle and its twins.

    After that every call crashes: the dead write nothing, not even in a `finally`.
    """

    def __init__(
        self,
        store: Store,
        verb: str,
        nth: int = 1,
        when: Literal["before", "after"] = "before",
        crash: Callable[[], None] = collapse,
    ) -> None:
        if verb == "tail" or not callable(getattr(Store, verb, None)):
            raise InvalidArgumentError(f"{verb!r} is not a verb of a store that can be awaited")
        super().__init__(store)
        self._verb = verb
        self._when = when
        self._crash = crash
        self._fate = _Fate(nth, Lock())

    def wrap(self, store: Store) -> CrashPoint:
        twin = CrashPoint(store, self._verb, when=self._when, crash=self._crash)
        twin._fate = self._fate
        return twin

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        fate = self._fate
        if fate.dead and verb == "close":
            return await call()  # the system closes what a dead process held
        struck = self._strikes(verb)
        if not (fate.dead or (struck and self._when == "before")):
            answer = await call()
            if not (struck or fate.dead):
                return answer
        fate.dead = True
        self._crash()
        raise AssertionError("the crash returned")

    def _strikes(self, verb: str) -> bool:
        if verb != self._verb:
            return False
        with self._fate.lock:
            self._fate.left -= 1
            return self._fate.left == 0
