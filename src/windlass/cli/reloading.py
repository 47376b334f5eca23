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
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

from windlass.cli import terminal
from windlass.worker.supervisor import LAST, MARGIN

LOOK = 0.5  # seconds
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
Snapshot = dict[str, int]


async def reload_on_change(command: Sequence[str]) -> int:
    """Run the command again and again; answers the exit code."""
    loop = asyncio.get_running_loop()
    watched, held = os.pipe()
    worker = _Worker(command, watched)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.ask)
    try:
        return await _again_and_again(worker)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        os.close(watched)
        os.close(held)


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

    def __init__(self, command: Sequence[str], watched: int) -> None:
        self._command = command
        self._watched = watched
        self._process: Process | None = None
        self.asked = 0
        self.stopped = asyncio.Event()

    async def run(self) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            f"--supervised={self._watched}:1",
            pass_fds=(self._watched,),
            start_new_session=True,
        )
        if self.asked:  # while it was starting
            process.terminate()
        return await process.wait()

    def ask(self) -> None:
        """As the signals that came: they are passed on, and the third kills."""
        self.asked += 1
        self.stopped.set()
        self._send(signal.SIGTERM if self.asked < 3 else signal.SIGKILL)  # noqa: PLR2004

    def end_at_once(self) -> None:
        """Two signals, of two kinds because one kind twice may arrive as one; then by force."""
        self._send(signal.SIGTERM)
        self._send(signal.SIGINT)
        process = self._process
        asyncio.get_running_loop().call_later(LAST + MARGIN, self._send, signal.SIGKILL, process)

    def _send(self, number: int, process: Process | None = None) -> None:
        target = process or self._process
        if target is not None and target.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(target.pid, number)  # it leads a group: its children, too
                else:
                    target.send_signal(number)


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
