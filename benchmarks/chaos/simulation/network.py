"""Simulated network between processes and the store: slow, lossy, and cut off for dead processes.

A request travels, runs on the store's own loop, and its response travels back. A sent request runs
even if its process has died meanwhile; so stale workers write. The same holds for a late request:
its sender got a timeout, may have repeated the call, lost the lease or died before it arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from benchmarks.chaos.simulation.event_loops import World
from windlass.core.errors import StoreUnavailableError
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
_HARMLESS = frozenset({"wait", "close"})
QUICK = 0.001  # seconds, at most, that a message travels in good weather
TIMEOUT = 0.5  # seconds, at most, after which a sender gives up a late request
LATE = 8.0  # seconds, at most, until it arrives then


@dataclass
class NetworkConditions:
    """Chances of a message to be lost or slow; a slow one may take so many seconds."""

    lost: float = 0.0
    slow: float = 0.0
    seconds: float = 0.0


class Network:
    """`loop` is the store's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop()
        self.conditions = NetworkConditions()
        self.late = 0.0  # the probability of a late request
        self.under_way = 0  # of those that are late

    def delay(self) -> float:
        if self.world.random.random() < self.conditions.slow:
            return self.world.random.uniform(0, self.conditions.seconds)
        return self.world.random.uniform(0, QUICK)

    def later(self, do: Callable[..., None], *args: object) -> None:
        """When a message that is sent now has arrived."""
        self.loop.call_later(self.delay(), do, *args)

    def is_lost(self) -> bool:
        return self.world.random.random() < self.conditions.lost

    def is_late(self) -> bool:
        return self.late > 0 and self.world.random.random() < self.late

    def lateness(self) -> tuple[float, float]:
        """When its sender gives it up, and when it arrives: often soon after, sometimes long."""
        draw = self.world.random.random
        gives_up = TIMEOUT * draw()
        return gives_up, gives_up + LATE * draw() ** 3


class Connection:
    """One process's connection. Once cut, nothing is sent and no answer arrives."""

    def __init__(self) -> None:
        self.cut = False


class RemoteStore(WrappedStore):
    """A handle of a simulated process on a store that is elsewhere."""

    def __init__(self, store: Store, network: Network, line: Connection) -> None:
        super().__init__(store)
        self._network = network
        self._connection = line

    def wrap(self, store: Store) -> RemoteStore:
        return RemoteStore(store, self._network, self._connection)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._connection.cut:
            raise StoreUnavailableError(f"{verb}: this process is dead")
        here = asyncio.get_running_loop()
        answer: asyncio.Future[T] = here.create_future()
        if verb not in _HARMLESS and self._network.is_late():
            self._send_late(verb, call, partial(self._receive, here, answer))
        else:
            tell = partial(self._send_back, verb, here, answer)
            self._network.later(self._arrive, verb, call, tell)
        return await answer

    def _send_late(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        hear: Callable[[T | None, BaseException | None], None],
    ) -> None:
        network = self._network
        network.under_way += 1
        gives_up, arrives = network.lateness()
        timed_out = StoreUnavailableError(f"{verb}: timed out")
        network.loop.call_later(gives_up, hear, None, timed_out)
        network.loop.call_later(arrives, self._arrive, verb, call, self._finish_late)

    # -- on the store's loop

    def _arrive(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        tell: Callable[[T | None, BaseException | None], None],
    ) -> None:
        network = self._network
        if verb not in _HARMLESS and network.is_lost():
            tell(None, StoreUnavailableError(f"{verb}: the request was lost"))
            return
        task: asyncio.Task[T] = network.loop.create_task(_made(call))
        task.add_done_callback(lambda done: tell(*_outcome(done)))

    def _send_back(
        self,
        verb: str,
        there: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
        result: T | None,
        error: BaseException | None,
    ) -> None:
        """A lost message costs its sender time, for it has to ask again."""
        if verb not in _HARMLESS and self._network.is_lost():
            error = StoreUnavailableError(f"{verb}: the answer was lost")
        self._network.later(self._receive, there, answer, result, error)

    def _finish_late(self, _: object, error: BaseException | None) -> None:
        """Finish a late request. Raise only errors that no store may raise."""
        self._network.under_way -= 1
        if error is not None and not isinstance(error, StoreUnavailableError):
            raise error

    def _receive(
        self,
        there: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
        result: object,
        error: BaseException | None,
    ) -> None:
        if not self._connection.cut:
            there.call_soon_threadsafe(_settle, answer, result, error)


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _outcome(done: asyncio.Task[T]) -> tuple[T | None, BaseException | None]:
    error = done.exception()
    return (None, error) if error is not None else (done.result(), None)


def _settle(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():
        return  # its caller is gone
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
