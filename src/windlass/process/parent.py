"""The parent, as its child sees it: somebody to talk to, and who may say stop.

A thread with an event loop of its own listens, whatever the main thread does. It ends with the
process. If the parent is gone, it kills the child's whole group at once: nobody is left to tell.
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

from windlass.process.channel import Channel, Message


class Stopped(BaseException):
    """The parent wants this process to end. Raised in the main thread, so that `finally` runs."""


def _stop() -> None:
    raise Stopped


class Parent:
    """For the main thread, around all it does. SIGTERM counts only if the parent announced it."""

    def __init__(self, end: socket) -> None:
        self.loop = asyncio.new_event_loop()
        self._channel = Channel(end, self.loop)
        self._work: SimpleQueue[Message] = SimpleQueue()
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = count(1)
        self._lock = Lock()
        self._pid = os.getpid()
        self._announced = Event()
        self._obeyed = False
        self.on_announced: Callable[[], None] = lambda: None  # called by the listening thread
        self._obey: Callable[[], None] = _stop
        signal.signal(signal.SIGTERM, self._on_sigterm)
        Thread(target=self._listen, name="windlass-parent", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The process is about to end: Python takes its handlers down, and a signal would kill."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def check_stop(self) -> None:
        """Raise Stopped if the parent wants this process to end."""
        if self._announced.is_set():
            raise Stopped

    @contextmanager
    def obeyed_by(self, act: Callable[[], None]) -> Iterator[None]:
        """In the block, the main thread does this when it is to stop, and nothing is raised."""
        self._obey = act
        try:
            yield
        finally:
            self._obey = _stop

    def next(self) -> Message:
        """The next message that is neither an answer nor a stop."""
        return self._work.get()

    def say(self, message: Message) -> None:
        self._channel.send(message)

    def ask(self, message: Message) -> Future[Any]:
        """The parent's answer to come; what it raised over there is raised here."""
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._asked[number] = answer
        self._channel.send({**message, "number": number})
        return answer

    def _listen(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._receive())
        except Exception:  # noqa: BLE001 - a deaf child can only end, but it says why
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
                case {"say": "stop"}:
                    self._announced.set()
                    self.on_announced()
                    os.kill(self._pid, signal.SIGTERM)  # ours may have come before its news
                case {"answer": number}:
                    self._resolve(number, message)
                case _:
                    self._work.put(message)

    def _resolve(self, number: int, message: Message) -> None:
        with self._lock:
            answer = self._asked.pop(number)
        if not answer.set_running_or_notify_cancel():
            return
        if "error" in message:
            answer.set_exception(RefusedError(**message["error"]))
        else:
            answer.set_result(message.get("value"))

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if os.getpid() != self._pid:  # a process that was forked off: it has no parent to obey
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif self._announced.is_set() and not self._obeyed:
            self._obeyed = True
            self._obey()


class RefusedError(Exception):
    """What the parent raised when it was asked."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
