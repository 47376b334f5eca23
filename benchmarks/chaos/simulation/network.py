"""The line between simulated processes and the store: slow, lossy, and deaf to the dead.

A request travels, is carried out on the store's own loop, and its answer travels back. What a
process has sent is carried out even if the process died in the meantime: that is how ghosts write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks.chaos.simulation.loops import World
from windlass.core.errors import StoreUnavailableError
from windlass.store import Store
from windlass.testing.wrapping import WrappedStore

T = TypeVar("T")
_HARMLESS = frozenset({"wait", "close"})
QUICK = 0.001  # seconds, at most, that a message travels in good weather


@dataclass
class Weather:
    """Chances of a message to be lost or late; `late` is how many seconds that may be."""

    lost: float = 0.0
    slow: float = 0.0
    late: float = 0.0


class Network:
    """`loop` is the store's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop()
        self.weather = Weather()

    def delay(self) -> float:
        if self.world.random.random() < self.weather.slow:
            return self.world.random.uniform(0, self.weather.late)
        return self.world.random.uniform(0, QUICK)

    def loses(self) -> bool:
        return self.world.random.random() < self.weather.lost


class Line:
    """One process's connection. Once cut, nothing is sent and no answer arrives."""

    def __init__(self) -> None:
        self.cut = False


class RemoteStore(WrappedStore):
    """A handle of a simulated process on a store that is elsewhere."""

    def __init__(self, store: Store, network: Network, line: Line) -> None:
        super().__init__(store)
        self._network = network
        self._line = line

    def wrap(self, store: Store) -> RemoteStore:
        return RemoteStore(store, self._network, self._line)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._line.cut:
            raise StoreUnavailableError(f"{verb}: this process is dead")
        here = asyncio.get_running_loop()
        answer: asyncio.Future[T] = here.create_future()
        self._network.loop.create_task(self._carry(verb, call, here, answer))
        return await answer

    async def _carry(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        there: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
    ) -> None:
        """On the store's loop. A lost message costs its sender a timeout, not an answer."""
        network = self._network
        await asyncio.sleep(network.delay())
        arrives = verb in _HARMLESS or not network.loses()
        lost = partial(_fail, StoreUnavailableError(f"{verb}: no answer came"))
        tell: Callable[[asyncio.Future[T]], None] = lost
        if arrives:
            try:
                tell = partial(_succeed, await call())
            except Exception as error:  # noqa: BLE001 - it is the caller's
                tell = partial(_fail, error)
        await asyncio.sleep(network.delay())
        if verb not in _HARMLESS and network.loses():
            tell = lost
        if not self._line.cut:
            there.call_soon_threadsafe(tell, answer)


def _succeed(result: T, answer: asyncio.Future[T]) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(error: Exception, answer: asyncio.Future[T]) -> None:
    if not answer.done():
        answer.set_exception(error)
