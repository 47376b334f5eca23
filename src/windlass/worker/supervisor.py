"""Keeps several worker processes alive.

Waits for: the end of each process, and signals. Guarantees: what dies is started again, after a
delay that grows while it dies quickly; one that ended itself to be replaced is replaced at once.
Stops: the first signal asks every worker to finish, the second to give its jobs back, the third
kills; a worker that outstays its time is killed, too. A crash, even `kill -9`, closes the pipe that
each worker watches (`lifeline`): they finish and end by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence

from windlass.worker.config import RELEASE
from windlass.worker.supervised_process import HeldProcess

LAST = 5.0  # seconds that a worker has to end once it was told to stop at once
MARGIN = 2.0  # seconds beyond which it is not trusted to end by itself
FIRST_DELAY, MAX_DELAY = 0.5, 30.0
SETTLED = 60.0  # seconds of life after which a death counts as the first again
USAGE = 2
RECYCLED = 75  # the exit code of a worker that wants to be replaced


class Supervisor:
    """`command` starts one worker; it gets one more argument, by which the worker finds us."""

    def __init__(
        self,
        command: Sequence[str],
        number: int,
        *,
        grace: float,
        burst: bool,
        say: Callable[[str], None],
    ) -> None:
        self._command = command
        self._number = number
        self._grace = grace
        self._burst = burst
        self._say = say
        self._alive: dict[int, HeldProcess] = {}
        self._codes: dict[int, int] = {}
        self._asked = 0
        self._stopping = asyncio.Event()
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Until all are told to stop, or have nothing left to do; answers the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            slots = range(1, self._number + 1)
            await asyncio.gather(*(self._keep(slot) for slot in slots))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            if self._killer is not None:
                self._killer.cancel()
        return max(self._codes.values(), default=0)

    def stop(self) -> None:
        """As a signal does: the first asks, the second insists, the third kills."""
        self._asked += 1
        self._stopping.set()
        if self._asked == 1:
            self._say(
                f"stopping all workers: running jobs have {self._grace:g} s to end; "
                "once more: at once"
            )
            for process in self._alive.values():
                process.finish()
            self._kill_in(self._grace + RELEASE + 2 * LAST + MARGIN)
        elif self._asked == 2:  # noqa: PLR2004 - the second signal
            self._say("stopping at once: what still runs is given back, uncounted")
            for process in self._alive.values():
                process.stop_at_once()
            self._kill_in(RELEASE + LAST + MARGIN)
        else:
            self._kill()

    def _kill_in(self, patience: float) -> None:
        if self._killer is not None:
            self._killer.cancel()
        self._killer = asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for slot, process in self._alive.items():
            self._say(
                f"worker {slot} (pid {process.pid}) does not end and is killed; "
                "its jobs are left to their leases"
            )
            process.kill()

    async def _keep(self, slot: int) -> None:
        """One worker after another, in this place."""
        delay = 0.0
        while not self._stopping.is_set():
            began = time.monotonic()
            who, code = await self._life(slot)
            if self._stopping.is_set() or (self._burst and code == 0):
                return
            if code == RECYCLED:
                delay = 0.0
                self._say(f"{who} is replaced by a fresh one")
                continue
            if self._hopeless():
                self._stopping.set()
                return
            lived = time.monotonic() - began
            delay = FIRST_DELAY if lived >= SETTLED else min(MAX_DELAY, 2 * delay or FIRST_DELAY)
            self._say(f"{who} {how(code)} after {lived:.1f} s; another starts in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _life(self, slot: int) -> tuple[str, int]:
        """Start a worker and wait for its end; answers who it was and its exit code."""
        try:
            process = self._alive[slot] = await HeldProcess.start(self._command, slot)
        except OSError as error:  # no memory or no process left: that may pass
            self._codes[slot] = 1
            return f"worker {slot}, which could not be started ({error}),", 1
        if self._stopping.is_set():  # told while it was starting
            process.finish()
            if self._asked > 1:
                process.stop_at_once()
        code = await process.wait()
        del self._alive[slot]
        self._codes[slot] = _verdict(code, stopping=self._stopping.is_set())
        return f"worker {slot} (pid {process.pid})", code

    def _hopeless(self) -> bool:
        """Whether none is left, and each was started wrongly: trying again would not help."""
        ended = list(self._codes.values())
        return not self._alive and len(ended) == self._number and set(ended) == {USAGE}


def _verdict(code: int, *, stopping: bool) -> int:
    """What a worker's end means for our own exit code."""
    if code in {0, RECYCLED} or (stopping and code == -signal.SIGTERM):  # it had not begun yet
        return 0
    return code if code > 0 else 1


def how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}" if code else "ended"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def this_program() -> list[str]:
    """The command line of Windlass in this very interpreter, with no module of the user's first."""
    return [sys.executable, "-P", "-m", "windlass"]
