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

    def later(self, do: Callable[..., None], *args: object) -> None:
        """When a message that is sent now has arrived."""
        self.loop.call_later(self.delay(), do, *args)

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
        tell = partial(self._send_back, verb, here, answer)
        self._network.later(self._arrive, verb, call, tell)
        return await answer

    # -- on the store's loop

    def _arrive(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        tell: Callable[[T | None, BaseException | None], None],
    ) -> None:
        network = self._network
        if verb not in _HARMLESS and network.loses():
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
        if verb not in _HARMLESS and self._network.loses():
            error = StoreUnavailableError(f"{verb}: the answer was lost")
        self._network.later(self._hear, there, answer, result, error)

    def _hear(
        self,
        there: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T | None],
        result: T | None,
        error: BaseException | None,
    ) -> None:
        if not self._line.cut:
            there.call_soon_threadsafe(_settle, answer, result, error)


async def _made(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _outcome(done: asyncio.Task[T]) -> tuple[T | None, BaseException | None]:
    error = done.exception()
    return (None, error) if error is not None else (done.result(), None)


def _settle(
    answer: asyncio.Future[T | None], result: T | None, error: BaseException | None
) -> None:
    if answer.done():
        return  # nobody waits for it any more
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
