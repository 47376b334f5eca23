"""Supervises several worker processes.

Waits for: the end of each process, and signals. Guarantees: restarts a worker that dies, with a
delay that grows while it dies quickly; replaces a recycled worker immediately. Stops: the first
signal asks every worker to finish, the second to requeue its jobs, the third kills. A worker that
exceeds its time is killed, too. A crash, even `kill -9`, closes the pipe that each worker watches
(`supervised_process`): the workers finish and end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence

from windlass.worker.config import DEFAULT_RELEASE_TIMEOUT
from windlass.worker.supervised_process import SupervisedProcess

FORCE_TIMEOUT = 5.0  # seconds for a worker to end after a forced stop
KILL_MARGIN = 2.0  # extra seconds before it is killed
FIRST_DELAY, MAX_DELAY = 0.5, 30.0
STABLE = 60.0  # seconds of uptime that reset the restart delay
USAGE_ERROR = 2
RECYCLED = 75  # exit code of a worker that asks to be replaced


class Supervisor:
    """`command` starts one worker; `report` prints a line for the operator."""

    def __init__(
        self,
        command: Sequence[str],
        number: int,
        *,
        grace: float,
        burst: bool,
        report: Callable[[str], None],
    ) -> None:
        self._command = command
        self._worker_count = number
        self._grace = grace
        self._burst = burst
        self._report = report
        self._running: dict[int, SupervisedProcess] = {}
        self._exit_codes: dict[int, int] = {}
        self._stop_count = 0
        self._stopping = asyncio.Event()
        self._kill_timer: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Supervise until stopped, or until a burst has ended; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            slots = range(1, self._worker_count + 1)
            await asyncio.gather(*(self._supervise_slot(slot) for slot in slots))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            if self._kill_timer is not None:
                self._kill_timer.cancel()
        return max(self._exit_codes.values(), default=0)

    def stop(self) -> None:
        """Handle a signal: the first asks workers to finish, the second forces, the third kills."""
        self._stop_count += 1
        self._stopping.set()
        if self._stop_count == 1:
            self._report(
                f"Shutting down all workers: waiting up to {self._grace:g} s for running jobs "
                "(Ctrl-C again to force)"
            )
            for process in self._running.values():
                process.finish()
            self._kill_in(self._grace + DEFAULT_RELEASE_TIMEOUT + 2 * FORCE_TIMEOUT + KILL_MARGIN)
        elif self._stop_count == 2:  # noqa: PLR2004 - the second signal
            self._report("Forced shutdown: running jobs requeued (attempt not counted)")
            for process in self._running.values():
                process.force_stop()
            self._kill_in(DEFAULT_RELEASE_TIMEOUT + FORCE_TIMEOUT + KILL_MARGIN)
        else:
            self._kill()

    def _kill_in(self, timeout: float) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = asyncio.get_running_loop().call_later(timeout, self._kill)

    def _kill(self) -> None:
        for slot, process in self._running.items():
            self._report(
                f"worker {slot} (pid {process.pid}) did not stop in time and is killed; "
                "its jobs will be retried after lease expiry"
            )
            process.kill()

    async def _supervise_slot(self, slot: int) -> None:
        """Run one worker after another in this slot."""
        delay = 0.0
        while not self._stopping.is_set():
            started_at = time.monotonic()
            label, code = await self._run_worker(slot)
            if self._stopping.is_set() or (self._burst and code == 0):
                return
            if code == RECYCLED:
                delay = 0.0
                self._report(f"{label} reached its limit and is replaced")
                continue
            if self._all_misconfigured():
                self._stopping.set()
                return
            uptime = time.monotonic() - started_at
            delay = FIRST_DELAY if uptime >= STABLE else min(MAX_DELAY, 2 * delay or FIRST_DELAY)
            self._report(
                f"{label} {describe_exit(code)} after {uptime:.1f} s; restarting in {delay:g} s"
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    async def _run_worker(self, slot: int) -> tuple[str, int]:
        """Start a worker and wait for its end; return its label and exit code."""
        try:
            process = self._running[slot] = await SupervisedProcess.start(self._command, slot)
        except OSError as error:  # out of memory or processes: may be temporary
            self._exit_codes[slot] = 1
            return f"worker {slot} (not started: {error})", 1
        if self._stopping.is_set():  # stopped while it was starting
            process.finish()
            if self._stop_count > 1:
                process.force_stop()
        code = await process.wait()
        del self._running[slot]
        self._exit_codes[slot] = _supervisor_exit_code(code, stopping=self._stopping.is_set())
        return f"worker {slot} (pid {process.pid})", code

    def _all_misconfigured(self) -> bool:
        """Whether every worker exited with a usage error: a restart would not help."""
        exit_codes = list(self._exit_codes.values())
        return (
            not self._running
            and len(exit_codes) == self._worker_count
            and set(exit_codes) == {USAGE_ERROR}
        )


def _supervisor_exit_code(code: int, *, stopping: bool) -> int:
    """Map a worker's exit code to the supervisor's."""
    if code in {0, RECYCLED} or (stopping and code == -signal.SIGTERM):  # it was still starting
        return 0
    return code if code > 0 else 1


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}" if code else "exited"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def windlass_command() -> list[str]:
    """Return the command that runs Windlass in this interpreter.

    `-P` keeps modules of the working directory from shadowing installed ones.
    """
    return [sys.executable, "-P", "-m", "windlass"]
