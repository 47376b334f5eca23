"""Detects writes of other processes: inotify on the WAL file, or polling without inotify.

Every commit of any process writes to the WAL. SQLite's data_version then shows whether another
process wrote. An idle watch costs nothing.
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
MIN_CHECK_INTERVAL = 0.002  # seconds between two checks during continuous changes
POLL_MIN, POLL_MAX = 0.005, 0.25


def _inotify(path: Path) -> int | None:
    """Return a descriptor that is readable after a write to the file; None if not available."""
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


class FileWatch:
    """Calls `check` soon after a write to the file; `check` returns whether another process wrote.

    SQLite deletes the WAL with its last connection, for example around a fork. The watch then polls
    until the file exists again. A forked child must not use the watch of its parent: see
    `inherited`.
    """

    def __init__(self, path: Path, check: Callable[[], Awaitable[bool]]) -> None:
        self._path = path
        self._check = check
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._descriptor: int | None = None
        self._changed = asyncio.Event()
        self._attach()
        self._task = self._loop.create_task(self._run(), name="windlass-sqlite-watch")

    @property
    def inherited(self) -> bool:
        """Return whether this watch belongs to the parent process of a fork."""
        return self._process != os.getpid()

    def _attach(self) -> None:
        self._descriptor = _inotify(self._path)
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._drain)
            self._changed.set()  # for writes before the watch existed

    def _detach(self) -> None:
        if self._descriptor is None:
            return
        if not self.inherited:  # the parent's event loop still uses its copy
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None

    def _drain(self) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BlockingIOError):
            if _watch_removed(os.read(self._descriptor, 4096)):
                self._detach()
        self._changed.set()

    async def _run(self) -> None:
        pause = POLL_MIN
        while True:
            if self._descriptor is not None:
                await self._changed.wait()
                self._changed.clear()
                pause = MIN_CHECK_INTERVAL
            with contextlib.suppress(Exception):  # a failed check is a missed hint
                if await self._check():
                    pause = MIN_CHECK_INTERVAL if self._descriptor is not None else POLL_MIN
            await asyncio.sleep(pause)
            if self._descriptor is None:
                pause = min(pause * 1.5, POLL_MAX)
                self._attach()

    async def close(self) -> None:
        if not self.inherited:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._detach()


def _watch_removed(events: bytes) -> bool:
    """Return whether the kernel removed the watch, because the file was deleted."""
    offset = 0
    while offset < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, offset)
        if mask & _IN_IGNORED:
            return True
        offset += _EVENT.size + length
    return False
