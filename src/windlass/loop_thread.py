"""A thread with an event loop, which runs async methods for synchronous code."""

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
    """An event loop on its own thread, started by the first call."""

    def __init__(self) -> None:
        self._refused: Counter[asyncio.AbstractEventLoop] = Counter()
        self._reset()

    @contextmanager
    def refusing(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Refuse blocking calls on this loop for the block: a worker runs on it."""
        self._refused[loop] += 1
        try:
            yield
        finally:
            self._refused[loop] -= 1
            if not self._refused[loop]:
                del self._refused[loop]

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            self._reset()  # the thread exists only in the parent process
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
        """Run a coroutine on the loop thread, and wait for it."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            pass  # no loop runs on this thread, the usual case
        else:
            self._check_loop(here, work)
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def _check_loop(self, here: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        """Refuse a call that would block the loop that has to run it; warn on other loops."""
        instead = "await the async method instead (aenqueue, aresult, arefresh, acancel, …)"
        if here in self._refused or here is self._loop:
            work.close()
            raise ConfigurationError(
                f"this call would block the event loop that has to run it; {instead}"
            )
        message = f"this call blocks the running event loop; {instead}"
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=_depth_of_caller())
        except BaseException:  # a filter may turn it into an error
            work.close()
            raise

    def close(self) -> None:
        """Stop the loop and cancel its tasks. The next call starts another one."""
        if self._pid != os.getpid():
            return
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _depth_of_caller() -> int:
    """Return the stack level of the first caller outside this package, for `warnings.warn`."""
    depth = 2
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - needed to walk the stack
    while frame is not None and frame.f_globals.get("__name__", "").startswith("windlass."):
        frame = frame.f_back
        depth += 1
    return depth


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # cancels tasks, closes the loop
        runner.get_loop().run_forever()
