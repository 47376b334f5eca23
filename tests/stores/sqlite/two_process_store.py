"""A store in another process, and a store whose calls alternate between two processes."""

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
from windlass.store import Capabilities, Store, StoreInsights
from windlass.stores.sqlite import SqliteStore
from windlass.testing.clock import VirtualClock
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


class RemoteProcess:
    """Client of the other process: concurrent calls over one pipe."""

    def __init__(self) -> None:
        local_socket, remote_socket = socket.socketpair()
        self._process = subprocess.Popen(
            (sys.executable, str(Path(__file__)), str(remote_socket.fileno())),
            pass_fds=[remote_socket.fileno()],
        )
        remote_socket.close()
        self._pipe = Connection(local_socket.detach())
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
            with contextlib.suppress(RuntimeError):  # the test has ended
                loop.call_soon_threadsafe(_settle, future, answer, error)

    async def call(self, method: str, *message: object) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        number = next(self._numbers)
        self._waiting[number] = (loop, future)
        self.calls.append(method)
        self._send(number, "call", method, *message)
        try:
            return await future
        except asyncio.CancelledError:
            self._send(number, "cancel")
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


def _method(store: Store, name: str) -> Callable[..., Awaitable[Any]]:
    method: Callable[..., Awaitable[Any]] = getattr(
        store.insights if name in StoreInsights.__abstractmethods__ else store, name
    )
    return method


class _Alternating:
    """Store whose calls run alternately in this process and in the other one."""

    _keys = count()

    def __init__(
        self,
        path: str,
        clock: VirtualClock,
        remote: RemoteProcess,
        own: Store,
        *,
        remote_first: bool,
    ) -> None:
        self._path = path
        self._clock = clock
        self._remote = remote
        self._own = own
        self._key = next(self._keys)
        self._remote_next = remote_first
        self._remote_claimed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._own.capabilities

    @property
    def insights(self) -> _Alternating:
        return self  # `__getattr__` calls the insights of one of the processes

    def twin(self) -> _Alternating:
        return _Alternating(
            self._path,
            self._clock,
            self._remote,
            self._own.twin(),
            remote_first=not self._remote_next,
        )

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return self._own.tail(job_id, after)

    async def close(self) -> None:
        await self._own.close()
        await self._call_remote("close")

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        def call(*arguments: object, **options: object) -> Awaitable[Any]:
            remote = self._remote_next
            if method == "wait":  # belongs to the handle that made the last claim
                remote = self._remote_claimed
            else:
                self._remote_next = not remote
            if method == "claim":
                self._remote_claimed = remote
            if remote:
                return self._call_remote(method, *arguments, **options)
            answer: Awaitable[Any] = _method(self._own, method)(*arguments, **options)
            return answer

        return call

    async def _call_remote(self, method: str, *arguments: object, **options: object) -> Any:
        now = self._clock.now()
        return await self._remote.call(method, self._key, self._path, now, arguments, options)


class TwoProcesses(WrappedStore):
    """One file, two processes, alternating calls."""

    @classmethod
    def on(
        cls, path: Path, clock: VirtualClock, remote: RemoteProcess, *, remote_first: bool
    ) -> TwoProcesses:
        own = SqliteStore(path, durability="off", clock=clock)
        alternating = _Alternating(str(path), clock, remote, own, remote_first=remote_first)
        return cls(cast("Store", alternating))

    def wrap(self, store: Store) -> TwoProcesses:
        return TwoProcesses(store)

    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()


# -- the other process


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
            self._loop.call_soon_threadsafe(self._handle, *message)
            if message[1] == "stop":
                return

    def _handle(self, number: int, *message: Any) -> None:
        if message[0] == "stop":
            self._stop.set()
        elif message[0] == "cancel":
            if number in self._calls:
                self._calls[number].cancel()
        else:
            self._calls[number] = self._loop.create_task(self._answer(number, message))

    async def _answer(self, number: int, message: tuple[Any, ...]) -> None:
        _, method, key, path, now, arguments, options = message
        answer, error = None, None
        try:
            store, clock = self._store(key, path)
            clock.jump(now)
            answer = await _method(store, method)(*arguments, **options)
        except asyncio.CancelledError as cancelled:
            error = cancelled
        except Exception as problem:  # noqa: BLE001 - sent to the caller
            error = problem  # type: ignore[assignment]
        finally:
            del self._calls[number]
        if method == "close":
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
