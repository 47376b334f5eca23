"""Restarts the development worker when code changes.

Waits for: a change of a .py file below the working directory, the worker's end, signals.
Guarantees: the old worker requeues its jobs before a new one starts. If a worker cannot start, for
example after a syntax error, it has printed why, and the next change tries again. Stops: by
signals, as a worker does. A crash closes the pipe that the worker watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from windlass.cli import terminal
from windlass.worker.supervised_process import SupervisedProcess
from windlass.worker.supervisor import FORCE_TIMEOUT, KILL_MARGIN

POLL_INTERVAL = 0.5  # seconds
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
Snapshot = dict[str, int]


async def reload_on_change(command: Sequence[str]) -> int:
    """Run the command, and again after each change; return the exit code."""
    loop = asyncio.get_running_loop()
    worker = _Worker(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    try:
        return await _run_loop(worker)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _run_loop(worker: _Worker) -> int:
    while not worker.stop_count:
        before = await asyncio.to_thread(snapshot, Path.cwd())
        ended = asyncio.create_task(worker.run())
        changed = asyncio.create_task(_wait_for_change(before))
        await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not worker.stop_count:
            if ended.result() == 0:
                changed.cancel()
                return 0
            terminal.info("Waiting for a code change")
            stopped = asyncio.create_task(worker.stopped.wait())
            await asyncio.wait({changed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        elif changed.done() and not worker.stop_count:
            worker.force_stop()
        if changed.done() and not worker.stop_count:
            terminal.info(f"{changed.result()} changed; reloading")
        changed.cancel()
        await ended
    return 0


class _Worker:
    """The current worker process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: SupervisedProcess | None = None
        self.stop_count = 0
        self.stopped = asyncio.Event()

    async def run(self) -> int:
        process = self._process = await SupervisedProcess.start(self._command, 1)
        if self.stop_count:  # stopped while it was starting
            process.finish()
        return await process.wait()

    def request_stop(self) -> None:
        """Pass a signal on to the worker; the third kills it."""
        self.stop_count += 1
        self.stopped.set()
        if self._process is None:
            return
        if self.stop_count == 1:
            self._process.finish()
        elif self.stop_count == 2:  # noqa: PLR2004 - the second signal
            self._process.force_stop()
        else:
            self._process.kill()

    def force_stop(self) -> None:
        """Stop the worker immediately; kill it after a timeout."""
        if self._process is not None:
            self._process.finish()  # ends a process that is still starting
            self._process.force_stop()
            asyncio.get_running_loop().call_later(FORCE_TIMEOUT + KILL_MARGIN, self._process.kill)


async def _wait_for_change(before: Snapshot) -> str:
    """Wait until a file differs from the snapshot; return its name."""
    while True:
        await asyncio.sleep(POLL_INTERVAL)
        now = await asyncio.to_thread(snapshot, Path.cwd())
        if now != before:
            changed = {name for name, _ in now.items() ^ before.items()}
            return min(changed)


def snapshot(root: Path) -> Snapshot:
    """Return the modification time of each .py file, without installed packages."""
    found: Snapshot = {}
    for parent, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        for name in files:
            if name.endswith(".py"):
                path = Path(parent, name)
                with contextlib.suppress(OSError):  # deleted meanwhile
                    found[str(path.relative_to(root))] = path.stat().st_mtime_ns
    return found
