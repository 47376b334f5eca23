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
_NEVER_LOST = frozenset({"wait", "close"})
MAX_DELAY = 0.001  # seconds that a message takes in normal conditions
MAX_TIMEOUT = 0.5  # seconds until the sender of a late request gives up
LATE = 8.0  # maximum seconds from then to its arrival


@dataclass
class NetworkConditions:
    """Probabilities that a message is lost or slow, and the maximum seconds of a slow one."""

    lost: float = 0.0
    slow: float = 0.0
    seconds: float = 0.0


class Network:
    """`loop` is the event loop of the store."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop()
        self.conditions = NetworkConditions()
        self.late = 0.0  # the probability of a late request
        self.late_requests = 0  # that have not arrived yet

    def delay(self) -> float:
        if self.world.random.random() < self.conditions.slow:
            return self.world.random.uniform(0, self.conditions.seconds)
        return self.world.random.uniform(0, MAX_DELAY)

    def later(self, do: Callable[..., None], *args: object) -> None:
        """Call `do` when a message that is sent now arrives."""
        self.loop.call_later(self.delay(), do, *args)

    def is_lost(self) -> bool:
        return self.world.random.random() < self.conditions.lost

    def is_late(self) -> bool:
        return self.late > 0 and self.world.random.random() < self.late

    def lateness(self) -> tuple[float, float]:
        """Return the seconds until the sender gives up and until the arrival, often soon after."""
        draw = self.world.random.random
        timeout = MAX_TIMEOUT * draw()
        return timeout, timeout + LATE * draw() ** 3


class Connection:
    """One process's connection. Once cut, nothing is sent and no answer arrives."""

    def __init__(self) -> None:
        self.cut = False


class RemoteStore(WrappedStore):
    """A handle of a simulated process on a remote store."""

    def __init__(self, store: Store, network: Network, connection: Connection) -> None:
        super().__init__(store)
        self._network = network
        self._connection = connection

    def wrap(self, store: Store) -> RemoteStore:
        return RemoteStore(store, self._network, self._connection)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._connection.cut:
            raise StoreUnavailableError(f"{verb}: this process is dead")
        loop = asyncio.get_running_loop()
        response: asyncio.Future[T] = loop.create_future()
        if verb not in _NEVER_LOST and self._network.is_late():
            self._send_late(verb, call, partial(self._receive, loop, response))
        else:
            respond = partial(self._send_back, verb, loop, response)
            self._network.later(self._arrive, verb, call, respond)
        return await response

    def _send_late(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        receive: Callable[[T | None, BaseException | None], None],
    ) -> None:
        network = self._network
        network.late_requests += 1
        timeout, arrives = network.lateness()
        timed_out = StoreUnavailableError(f"{verb}: timed out")
        network.loop.call_later(timeout, receive, None, timed_out)
        network.loop.call_later(arrives, self._arrive, verb, call, self._finish_late)

    # -- on the store's loop

    def _arrive(
        self,
        verb: str,
        call: Callable[[], Awaitable[T]],
        respond: Callable[[T | None, BaseException | None], None],
    ) -> None:
        network = self._network
        if verb not in _NEVER_LOST and network.is_lost():
            respond(None, StoreUnavailableError(f"{verb}: the request was lost"))
            return
        task: asyncio.Task[T] = network.loop.create_task(_run_call(call))
        task.add_done_callback(lambda done: respond(*_outcome(done)))

    def _send_back(
        self,
        verb: str,
        sender_loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
        result: T | None,
        error: BaseException | None,
    ) -> None:
        """Send the response; if it is lost, the sender gets an error later and has to repeat."""
        if verb not in _NEVER_LOST and self._network.is_lost():
            error = StoreUnavailableError(f"{verb}: the response was lost")
        self._network.later(self._receive, sender_loop, answer, result, error)

    def _finish_late(self, _: object, error: BaseException | None) -> None:
        """Finish a late request. Raise only errors that no store may raise."""
        self._network.late_requests -= 1
        if error is not None and not isinstance(error, StoreUnavailableError):
            raise error

    def _receive(
        self,
        sender_loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
        result: object,
        error: BaseException | None,
    ) -> None:
        if not self._connection.cut:
            sender_loop.call_soon_threadsafe(_settle, answer, result, error)


async def _run_call(call: Callable[[], Awaitable[T]]) -> T:
    return await call()


def _outcome(done: asyncio.Task[T]) -> tuple[T | None, BaseException | None]:
    error = done.exception()
    return (None, error) if error is not None else (done.result(), None)


def _settle(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():
        return  # the caller is gone
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
