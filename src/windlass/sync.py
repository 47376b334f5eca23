"""The door for code without an event loop: one background loop thread, one line per call."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections import Counter
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock, Thread
from types import FrameType
from typing import Any, TypeVar

from windlass.core.errors import ConfigurationError

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread of its own, started by its first call."""

    def __init__(self) -> None:
        self._refused: Counter[asyncio.AbstractEventLoop] = Counter()
        self._start_afresh()

    @contextmanager
    def refusing(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Let no call wait on this loop for now: a worker lives on it, and all its tasks."""
        self._refused[loop] += 1
        try:
            yield
        finally:
            self._refused[loop] -= 1
            if not self._refused[loop]:
                del self._refused[loop]

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._start_afresh()  # the thread stayed behind in the process that forked
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(
                    target=_run, args=(self._loop,), name="windlass-sync", daemon=True
                )
                self._thread.start()
            return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run it there and wait here."""
        try:
            self._check_here()
        except BaseException:
            work.close()
            raise
        future = self.submit(work)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _check_here(self) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here in self._refused or here is self._loop:
            raise ConfigurationError(
                "this would block the event loop that has to do it, and every task on it: "
                "await the async name instead (aenqueue, aresult, arefresh, acancel, …)"
            )
        warnings.warn(
            "this blocks the running event loop until it is done; "
            "await the async name instead (aenqueue, aresult, arefresh, acancel, …)",
            RuntimeWarning,
            stacklevel=_depth_of_caller(),
        )

    def close(self) -> None:
        """End the loop, and what still waits on it. The next call would start another."""
        if self._pid != os.getpid():
            return
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _depth_of_caller() -> int:
    """How far up the stack of `warnings.warn` the first line outside this package is."""
    depth = 2
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the way to walk the stack
    while frame is not None and frame.f_globals.get("__name__", "").startswith("windlass."):
        frame = frame.f_back
        depth += 1
    return depth


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # it tidies up as it leaves
        runner.get_loop().run_forever()
