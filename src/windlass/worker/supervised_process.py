"""A worker process, held by a pipe: by it the worker hears what no signal can say.

Whoever manages services may send a signal to a supervisor and to each of its workers, so a worker
that heard two cannot know whether it was asked once or twice. For a supervised one every signal
therefore means the same: finish. "At once" comes by the pipe, and so does, by its end, that the
supervisor is gone; both reach a worker whose main thread is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from threading import Thread

_AT_ONCE = b"!"


class HeldProcess:
    """At the supervisor's end. It leads a session: Ctrl-C in a terminal does not reach it."""

    def __init__(self, process: Process, pipe: int) -> None:
        self._process = process
        self._pipe = pipe
        self.pid = process.pid

    @staticmethod
    async def start(command: Sequence[str], slot: int) -> HeldProcess:
        """The command gets one more argument, by which the worker finds its end of the pipe."""
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                f"--supervised={theirs}:{slot}",
                pass_fds=(theirs,),
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return HeldProcess(process, ours)

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        try:
            return await self._process.wait()
        finally:
            os.close(self._pipe)
            self._pipe = -1

    def finish(self) -> None:
        """Let it end in order; one that has not begun yet ends here and now."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def stop_at_once(self) -> None:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.write(self._pipe, _AT_ONCE)

    def kill(self) -> None:
        """With its children: it leads a group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def follow(supervisor: int, at_once: Callable[[], object]) -> None:
    """In a worker: have `at_once` called, on a thread, when the supervisor says so.

    When that is gone, end as if by SIGTERM. The kernel closes a dead process's files, so this
    misses no way to die; and who was dead before the worker began to look has closed its end.
    """
    os.set_inheritable(supervisor, False)

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(supervisor, 1):
                at_once()
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="windlass-lifeline", daemon=True).start()
