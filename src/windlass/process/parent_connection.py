"""A child's connection to its parent: messages, requests, and stop requests.

A daemon thread with its own event loop receives messages while the main thread runs tasks. When the
connection closes, the thread kills the child's whole process group immediately.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from socket import socket
from threading import Event, Lock, Thread
from types import FrameType
from typing import Any, Self

from windlass.process.channel import Message, MessageChannel


class StopRequested(BaseException):
    """The parent requests a stop. Raised in the main thread, so that `finally` runs."""


def _raise_stop() -> None:
    raise StopRequested


class ParentConnection:
    """Connection to the parent, for the main thread. SIGTERM is ignored before a stop message."""

    def __init__(self, connection: socket) -> None:
        self.loop = asyncio.new_event_loop()
        self._channel = MessageChannel(connection, self.loop)
        self._work: SimpleQueue[Message] = SimpleQueue()
        self._requests: dict[int, Future[Any]] = {}
        self._numbers = count(1)
        self._lock = Lock()
        self._pid = os.getpid()
        self._stop_requested = Event()
        self._handled = False
        self.on_stop: Callable[[], None] = lambda: None  # called by the listening thread
        self._handler: Callable[[], None] = _raise_stop
        signal.signal(signal.SIGTERM, self._on_sigterm)
        Thread(target=self._listen, name="windlass-parent", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ignore SIGTERM: at exit, Python restores the default action, which kills the process."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def check_stop(self) -> None:
        """Raise StopRequested if the parent has sent a stop message."""
        if self._stop_requested.is_set():
            raise StopRequested

    @contextmanager
    def stop_handler(self, handler: Callable[[], None]) -> Iterator[None]:
        """In the block, a stop calls the handler instead of raising StopRequested."""
        self._handler = handler
        try:
            yield
        finally:
            self._handler = _raise_stop

    def next(self) -> Message:
        """Wait for the next message that is neither a response nor a stop."""
        return self._work.get()

    def send(self, message: Message) -> None:
        self._channel.send(message)

    def request(self, message: Message) -> Future[Any]:
        """Send a request; the future gets the parent's response, or its error as ParentError."""
        response: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._requests[number] = response
        self._channel.send({**message, "request": number})
        return response

    def _listen(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._receive())
        except Exception:  # noqa: BLE001 - without a connection the child must end; log why
            traceback.print_exc()
        finally:
            os.killpg(self._pid, signal.SIGKILL)

    async def _receive(self) -> None:
        while True:
            try:
                message = await self._channel.receive()
            except EOFError:
                return
            match message:
                case {"type": "stop"}:
                    self._stop_requested.set()
                    self.on_stop()
                    os.kill(self._pid, signal.SIGTERM)  # an earlier SIGTERM was ignored
                case {"response": number}:
                    self._resolve(number, message)
                case _:
                    self._work.put(message)

    def _resolve(self, number: int, message: Message) -> None:
        with self._lock:
            response = self._requests.pop(number)
        if not response.set_running_or_notify_cancel():
            return
        if "error" in message:
            response.set_exception(ParentError(**message["error"]))
        else:
            response.set_result(message.get("value"))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if os.getpid() != self._pid:  # a forked process, without this connection
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif self._stop_requested.is_set() and not self._handled:
            self._handled = True
            self._handler()


class ParentError(Exception):
    """An error that the parent raised for a request."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
