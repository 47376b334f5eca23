"""A store that lives in another process, and one whose calls take turns between two processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar, cast
from uuid import UUID

from windlass.core.event import Event
from windlass.store import Capabilities, Store
from windlass.stores.sqlite import SqliteStore
from windlass.testing.clock import VirtualClock
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class Neighbour:
    """The other process, as the tests' process talks to it: many calls at once, over one pipe."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            (sys.executable, str(Path(__file__)), str(theirs.fileno())), pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._pipe = Connection(mine.detach())
        self._numbers = count(1)
        self._lock = Lock()
        self.calls: list[str] = []
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                number, answer, error = self._pipe.recv()
            except (EOFError, OSError):
                return
            loop, future = self._waiting.pop(number)
            with contextlib.suppress(RuntimeError):  # a test that is over waits for nothing
                loop.call_soon_threadsafe(_settle, future, answer, error)

    async def call(self, verb: str, *message: object) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        number = next(self._numbers)
        self._waiting[number] = (loop, future)
        self.calls.append(verb)
        self._send(number, "call", verb, *message)
        try:
            return await future
        except asyncio.CancelledError:
            self._send(number, "let go")
            raise

    def _send(self, *message: object) -> None:
        with self._lock:
            self._pipe.send(message)

    def close(self) -> None:
        self._send(0, "stop")
        assert self._process.wait(10) == 0
        self._reader.join()
        self._pipe.close()


def _settle(future: asyncio.Future[Any], answer: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)


class _Turns:
    """Answers to a store's verbs: one call here, the next one there."""

    _keys = count()

    def __init__(
        self, path: str, clock: VirtualClock, neighbour: Neighbour, own: Store, *, far_first: bool
    ) -> None:
        self._path = path
        self._clock = clock
        self._neighbour = neighbour
        self._own = own
        self._key = next(self._keys)
        self._far_next = far_first
        self._far_claimed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._own.capabilities

    def twin(self) -> _Turns:
        return _Turns(
            self._path,
            self._clock,
            self._neighbour,
            self._own.twin(),
            far_first=not self._far_next,
        )

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return self._own.tail(job_id, after)

    async def close(self) -> None:
        await self._own.close()
        await self._far("close")

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        def call(*arguments: object, **options: object) -> Awaitable[Any]:
            far = self._far_next
            if verb == "wait":  # news since the last claim: for whoever made it
                far = self._far_claimed
            else:
                self._far_next = not far
            if verb == "claim":
                self._far_claimed = far
            if far:
                return self._far(verb, *arguments, **options)
            answer: Awaitable[Any] = getattr(self._own, verb)(*arguments, **options)
            return answer

        return call

    async def _far(self, verb: str, *arguments: object, **options: object) -> Any:
        now = self._clock.now()
        return await self._neighbour.call(verb, self._key, self._path, now, arguments, options)


class TwoProcesses(WrappedStore):
    """One file, two processes, calls in turn."""

    @classmethod
    def on(
        cls, path: Path, clock: VirtualClock, neighbour: Neighbour, *, far_first: bool
    ) -> TwoProcesses:
        own = SqliteStore(path, durability="off", clock=clock)
        turns = _Turns(str(path), clock, neighbour, own, far_first=far_first)
        return cls(cast("Store", turns))

    def wrap(self, store: Store) -> TwoProcesses:
        return TwoProcesses(store)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()


# -- the other side


class _Server:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = Lock()
        self._loop = asyncio.get_running_loop()
        self._stores: dict[int, tuple[SqliteStore, VirtualClock]] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    async def run(self) -> None:
        Thread(target=self._read, daemon=True).start()
        await self._stop.wait()

    def _read(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except EOFError:
                message = (0, "stop")
            self._loop.call_soon_threadsafe(self._obey, *message)
            if message[1] == "stop":
                return

    def _obey(self, number: int, *message: Any) -> None:
        if message[0] == "stop":
            self._stop.set()
        elif message[0] == "let go":
            if number in self._calls:
                self._calls[number].cancel()
        else:
            self._calls[number] = self._loop.create_task(self._answer(number, message))

    async def _answer(self, number: int, message: tuple[Any, ...]) -> None:
        _, verb, key, path, now, arguments, options = message
        answer, error = None, None
        try:
            store, clock = self._store(key, path)
            clock.jump(now)
            answer = await getattr(store, verb)(*arguments, **options)
        except asyncio.CancelledError as gone:
            error = gone
        except Exception as problem:  # noqa: BLE001 - the caller shall have it
            error = problem  # type: ignore[assignment]
        finally:
            del self._calls[number]
        if verb == "close":
            self._stores.pop(key, None)
        with self._lock:
            self._pipe.send((number, answer, error))

    def _store(self, key: int, path: str) -> tuple[SqliteStore, VirtualClock]:
        if key not in self._stores:
            clock = VirtualClock()
            self._stores[key] = (SqliteStore(path, durability="off", clock=clock), clock)
        return self._stores[key]


async def _serve(descriptor: int) -> None:
    await _Server(Connection(descriptor)).run()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
