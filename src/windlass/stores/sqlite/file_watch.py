"""Noticing that another process wrote: a watch on the WAL file, and polling where there is none.

Every commit of any process writes to the WAL, so a change of that file is the hint, and SQLite's
data_version tells whether it was somebody else. Idle, the watch costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
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
    """Calls `look` soon after the file was written; `look` answers whether it was news.

    The file goes when its last user lets go of it (around a fork, for one): then it is polled until
    there is one to watch again. A forked child inherits a watch that it must not use: see `alien`.
    """

    def __init__(self, path: Path, look: Callable[[], Awaitable[bool]]) -> None:
        self._path = path
        self._look = look
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = None
        self._changed = asyncio.Event()
        self._attach()
        self._task = self._loop.create_task(self._run(), name="windlass-sqlite-watch")

    @property
    def alien(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._process != os.getpid()

    def _attach(self) -> None:
        self._descriptor = _inotify(self._path)
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._drain)
            self._changed.set()  # by what came before the watch did

    def _detach(self) -> None:
        if self._descriptor is None:
            return
        if not self.alien:  # the parent's event loop still listens to its own
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None

    def _drain(self) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BlockingIOError):
            if _says_gone(os.read(self._descriptor, 4096)):
                self._detach()
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
                self._attach()

    async def close(self) -> None:
        if not self.alien:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._detach()


def _says_gone(events: bytes) -> bool:
    """Whether the kernel gave up the watch, because the file is no more."""
    at = 0
    while at < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        if mask & _IN_IGNORED:
            return True
        at += _EVENT.size + length
    return False
