"""One child process: started in a session of its own, spoken with, and ended with all it started.

Its group (all that it starts and that does not leave it) lives no longer than it does: when the
child ends, in whatever way, the rest of the group is killed before the child is reaped, while the
group's number cannot be somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from windlass.core.job import failure
from windlass.process.channel import Channel, Message
from windlass.process.groups import Groups

_BOOT = Path(__file__).with_name("boot.py")
STOP: Message = {"say": "stop"}


class ProcessDiedError(Exception):
    """`signal` is what it died of, or None; `exit_code` is its own, or None."""

    code: ClassVar[str] = failure.CRASHED

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.signal = signal.Signals(-status) if -status in _SIGNALS else None
        self.exit_code = status if status >= 0 else None
        how = f"died of {_name(-status)}" if status < 0 else f"exited with code {status}"
        super().__init__(f"its process (pid {pid}) {how}{_HINTS.get(-status, '')}")


_SIGNALS = {int(known) for known in signal.Signals}
_HINTS = {int(signal.SIGKILL): "; perhaps the system was out of memory"}


def _name(number: int) -> str:
    return signal.Signals(number).name if number in _SIGNALS else f"signal {number}"


class Process:
    """Belongs to the event loop that started it.

    Start it from a thread that lives as long as it should: on Linux it dies with that thread.
    """

    def __init__(self, module: str, groups: Groups) -> None:
        """Start Python, which then calls `main` of the module with its end of the socket."""
        self._loop = asyncio.get_running_loop()
        self._groups = groups
        ours, theirs = socket.socketpair()
        try:
            # No preexec_fn: it would run the handlers of a fork, which close SQLite's connections.
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-P", str(_BOOT), str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.channel = Channel(ours, self._loop)
        try:
            groups.add(self.pid)
            self._watch = _end_of(self.pid)
        except BaseException:
            self._process.kill()
            self._process.wait()
            ours.close()
            raise
        self._loop.add_reader(self._watch, self._reap)
        self.channel.send({"path": sys.path, "argv": sys.argv, "module": module})

    @property
    def pid(self) -> int:
        """Of the child, and of its group and session."""
        return self._process.pid

    def _reap(self) -> None:
        self._loop.remove_reader(self._watch)
        os.close(self._watch)
        self._signal(signal.SIGKILL)
        try:
            self._groups.remove(self.pid)
        finally:
            self.ended.set_result(self._process.wait())

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def stop(self, grace: float) -> None:
        """Ask the whole group to end, and after the grace make it. Returns when the child is gone.

        The child is told by a message that the SIGTERM is ours. One from elsewhere (a service
        manager signals every process of a service) it leaves to its parent to obey.
        """
        if not self.ended.done():
            self.channel.send(STOP)
            self._signal(signal.SIGTERM)
            await asyncio.wait({self.ended}, timeout=grace)
        if not self.ended.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait({self.ended})

    def close(self) -> None:
        """When it has ended, and nobody listens any more."""
        self.channel.close()


def _end_of(pid: int) -> int:
    """A descriptor that becomes readable when the child has ended; it is not reaped by that."""
    if sys.platform == "linux":
        return os.pidfd_open(pid)
    import select  # noqa: PLC0415

    queue = select.kqueue()
    wanted = select.kevent(
        pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT
    )
    try:
        queue.control([wanted], 0)
        return os.dup(queue.fileno())
    except ProcessLookupError:  # it has ended already: the end of a pipe without a writer is ready
        ready, writer = os.pipe()
        os.close(writer)
        return ready
    finally:
        queue.close()
