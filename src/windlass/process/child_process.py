"""A child process: started in its own session and ended with all its descendants.

The process group never outlives the child: when the child ends for any reason, the rest of the
group is killed before the child is reaped. Until then the group id cannot be reused.
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
from windlass.process.channel import Message, MessageChannel
from windlass.process.groups import ProcessGroups

_BOOT = Path(__file__).with_name("boot.py")
STOP: Message = {"type": "stop"}


class ProcessDiedError(Exception):
    """A child died: by `signal`, or with `exit_code`; the other is None."""

    code: ClassVar[str] = failure.CRASHED

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.signal = signal.Signals(-status) if -status in _SIGNALS else None
        self.exit_code = status if status >= 0 else None
        cause = f"was killed by {_name(-status)}" if status < 0 else f"exited with code {status}"
        super().__init__(f"its process (pid {pid}) {cause}{_HINTS.get(-status, '')}")


_SIGNALS = {int(number) for number in signal.Signals}
_HINTS = {int(signal.SIGKILL): "; possibly out of memory"}


def _name(number: int) -> str:
    return signal.Signals(number).name if number in _SIGNALS else f"signal {number}"


class ChildProcess:
    """A child process; belongs to the event loop that started it.

    Start it from a long-lived thread: on Linux it dies with that thread.
    """

    def __init__(self, module: str, groups: ProcessGroups) -> None:
        """Start Python, which calls `main` of the module with its end of the socket."""
        self._loop = asyncio.get_running_loop()
        self._groups = groups
        parent_end, child_end = socket.socketpair()
        try:
            # No preexec_fn: it would run the fork handlers, which close SQLite's connections.
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-P", str(_BOOT), str(child_end.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                start_new_session=True,
            )
        except BaseException:
            parent_end.close()
            raise
        finally:
            child_end.close()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self.channel = MessageChannel(parent_end, self._loop)
        try:
            groups.add(self.pid)
            self._exit_fd = _open_exit_fd(self.pid)
        except BaseException:
            self._process.kill()
            self._process.wait()
            parent_end.close()
            raise
        self._loop.add_reader(self._exit_fd, self._reap)
        self.channel.send({"path": sys.path, "argv": sys.argv, "module": module})

    @property
    def pid(self) -> int:
        """Process id of the child, also of its group and session."""
        return self._process.pid

    def _reap(self) -> None:
        self._loop.remove_reader(self._exit_fd)
        os.close(self._exit_fd)
        self._signal(signal.SIGKILL)
        try:
            self._groups.remove(self.pid)
        finally:
            self.ended.set_result(self._process.wait())

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def stop(self, grace: float) -> None:
        """Stop the whole group; kill it after the grace. Returns when the child has ended.

        A message announces the SIGTERM. The child ignores a SIGTERM without it: a service manager
        signals every process of a service, and only the parent acts on that.
        """
        if not self.ended.done():
            self.channel.send(STOP)
            self._signal(signal.SIGTERM)
            await asyncio.wait({self.ended}, timeout=grace)
        if not self.ended.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait({self.ended})

    def close(self) -> None:
        """Close the channel, after the process has ended."""
        self.channel.close()


def _open_exit_fd(pid: int) -> int:
    """Return a descriptor that becomes readable when the child has ended, before it is reaped."""
    if sys.platform == "linux":
        return os.pidfd_open(pid)
    import select  # noqa: PLC0415

    queue = select.kqueue()
    event = select.kevent(
        pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT
    )
    try:
        queue.control([event], 0)
        return os.dup(queue.fileno())
    except ProcessLookupError:  # already ended: a pipe without a writer is readable
        ready, writer = os.pipe()
        os.close(writer)
        return ready
    finally:
        queue.close()
