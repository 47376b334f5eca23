"""A worker for development that starts anew when code changes.

Waits for: a change of a .py file below the working directory, the end of the worker, signals.
Guarantees: the worker that ran the old code gives its jobs back before another runs the new; one
that cannot start (a syntax error, say) has shown why, and the next change tries again. Stops: by
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
from windlass.worker.supervised_process import HeldProcess
from windlass.worker.supervisor import LAST, MARGIN

LOOK = 0.5  # seconds
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
Snapshot = dict[str, int]


async def reload_on_change(command: Sequence[str]) -> int:
    """Run the command again and again; answers the exit code."""
    loop = asyncio.get_running_loop()
    worker = _Worker(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.ask)
    try:
        return await _again_and_again(worker)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _again_and_again(worker: _Worker) -> int:
    while not worker.asked:
        seen = await asyncio.to_thread(snapshot, Path.cwd())
        ended = asyncio.create_task(worker.run())
        changed = asyncio.create_task(_change(seen))
        await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not worker.asked:
            if ended.result() == 0:
                changed.cancel()
                return 0
            terminal.say("waiting for a change in the code")
            stopped = asyncio.create_task(worker.stopped.wait())
            await asyncio.wait({changed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        elif changed.done() and not worker.asked:
            worker.end_at_once()
        if changed.done() and not worker.asked:
            terminal.say(f"{changed.result()} changed: starting anew")
        changed.cancel()
        await ended
    return 0


class _Worker:
    """The process that does the work, one after another."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: HeldProcess | None = None
        self.asked = 0
        self.stopped = asyncio.Event()

    async def run(self) -> int:
        process = self._process = await HeldProcess.start(self._command, 1)
        if self.asked:  # while it was starting
            process.finish()
        return await process.wait()

    def ask(self) -> None:
        """As the signals that came: they are passed on, and the third kills."""
        self.asked += 1
        self.stopped.set()
        if self._process is None:
            return
        if self.asked == 1:
            self._process.finish()
        elif self.asked == 2:  # noqa: PLR2004 - the second signal
            self._process.stop_at_once()
        else:
            self._process.kill()

    def end_at_once(self) -> None:
        """In order if it can, and then by force."""
        if self._process is not None:
            self._process.finish()  # which ends one that has not begun
            self._process.stop_at_once()
            asyncio.get_running_loop().call_later(LAST + MARGIN, self._process.kill)


async def _change(seen: Snapshot) -> str:
    """Wait for the first file that differs from what was seen; answers its name."""
    while True:
        await asyncio.sleep(LOOK)
        now = await asyncio.to_thread(snapshot, Path.cwd())
        if now != seen:
            different = {name for name, _ in now.items() ^ seen.items()}
            return min(different)


def snapshot(place: Path) -> Snapshot:
    """When each .py file below was last written; installed packages are no one's code here."""
    found: Snapshot = {}
    for above, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name[0] != "." and name not in _SKIPPED]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        for name in files:
            if name.endswith(".py"):
                path = Path(above, name)
                with contextlib.suppress(OSError):  # it may be gone again
                    found[str(path.relative_to(place))] = path.stat().st_mtime_ns
    return found
