"""Noticing that another process wrote: a watch on the WAL file, and polling where there is none.

Every commit of any process writes to the WAL, so a change of that file is the hint, and SQLite's
data_version tells whether it was somebody else. Idle, the watch costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

_IN_MODIFY = 0x2
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
QUIET = 0.002  # seconds between two looks while changes keep coming
POLL_FIRST, POLL_LAST = 0.005, 0.25


def _inotify(path: Path) -> int | None:
    """A descriptor that becomes readable when the file is written; None where that is not to be."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor


class Watch:
    """Calls `look` soon after the file was written; `look` answers whether it was news."""

    def __init__(self, path: Path, look: Callable[[], Awaitable[bool]]) -> None:
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._descriptor = _inotify(path)
        self._changed = asyncio.Event()
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._drain)
        self._task = self._loop.create_task(self._run(), name="windlass-sqlite-watch")

    def _drain(self) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 4096)
        self._changed.set()

    async def _run(self) -> None:
        pause = POLL_FIRST
        while True:
            if self._descriptor is not None:
                await self._changed.wait()
                self._changed.clear()
                pause = QUIET
            with contextlib.suppress(Exception):  # a hint that fails is a hint not given
                if await self._look():
                    pause = QUIET if self._descriptor is not None else POLL_FIRST
            await asyncio.sleep(pause)
            if self._descriptor is None:
                pause = min(pause * 1.5, POLL_LAST)

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
