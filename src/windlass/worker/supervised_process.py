"""A worker process of a supervisor, with a pipe for the forced stop.

A service manager may signal the supervisor and each worker. A worker that gets two signals cannot
tell a second request from a copy of the first. So for a supervised worker every signal means: shut
down gracefully. The forced stop comes through the pipe. EOF on the pipe means that the supervisor
died. Both reach a worker whose main thread is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from threading import Thread

_FORCE = b"!"


class SupervisedProcess:
    """The supervisor's handle on a worker process.

    The process leads its own session, so Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, process: Process, pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.pid = process.pid

    @staticmethod
    async def start(command: Sequence[str], slot: int) -> SupervisedProcess:
        """Start the command with one more argument: the worker's end of the pipe, and its slot."""
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                f"--supervised={read_end}:{slot}",
                pass_fds=(read_end,),
                start_new_session=True,
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return SupervisedProcess(process, write_end)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        try:
            return await self._process.wait()
        finally:
            os.close(self._pipe)
            self._pipe = -1

    def finish(self) -> None:
        """Request a graceful shutdown. A process that is still starting ends immediately."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def force_stop(self) -> None:
        with contextlib.suppress(OSError):  # the process has already ended
            os.write(self._pipe, _FORCE)

    def kill(self) -> None:
        """Kill the process with its children: it leads a process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def watch_supervisor(pipe: int, on_force: Callable[[], object]) -> None:
    """In a worker: call `on_force`, on a thread, when the supervisor forces a stop.

    When the supervisor is gone, send SIGTERM to this process. The kernel closes the pipe of a dead
    process, so this detects every kind of death, also one before this call.
    """
    os.set_inheritable(pipe, False)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(pipe, 1):
                on_force()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="windlass-supervisor-watch", daemon=True).start()
