"""Runs a worker, and shuts it down in three steps: finish, force, exit.

The first signal gives running jobs the grace period. The second signal, or a little more than the
grace period, requeues them. The third signal, or a little later, ends the process even if tasks,
threads or the store block; running jobs are then left to lease expiry. A separate thread does this,
because a task may block the event loop. It never waits for a reader of its output.

Under a supervisor, every signal is the first step; the second comes through the pipe
(`supervised_process`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread, get_ident
from types import FrameType
from typing import Any

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.worker_process.background_printer import BackgroundPrinter
from windlass.cli.worker_process.stop_requests import StopRequest, StopRequests
from windlass.cli.worker_process.store_availability import wait_for_store
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.worker import Worker
from windlass.worker.supervisor import FORCE_TIMEOUT

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
WAKE_SIGNAL, WAKE_INTERVAL = signal.SIGURG, 0.2  # seconds
STORE_TIMEOUT = 1.0  # seconds
MAX_LISTED = 5  # jobs in the last message
SHOW_CURSOR = "\x1b[?25h"


class WorkerRunner:
    """Runs one worker and stops it on signals or on request of a supervisor.

    `requests` holds the supervisor's requests, also earlier ones. With `quiet`, only the supervisor
    prints shutdown messages.
    """

    def __init__(
        self,
        app: Windlass,
        worker: Worker,
        output: BackgroundPrinter,
        *,
        requests: StopRequests | None = None,
        quiet: bool = False,
    ) -> None:
        self._quiet = quiet
        self._app = app
        self._worker = worker
        self._output = output
        self._supervised = requests is not None
        self._requests: StopRequests = SimpleQueue() if requests is None else requests
        self._step = 0  # 1: finish, 2: force, 3: exit
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._main_thread = get_ident()
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until the worker has ended; report errors of its lifespan during a forced stop."""
        self._running = self._loop.create_task(self._work())
        Thread(target=self._handle_requests, name="windlass-shutdown", daemon=True).start()
        with self._signal_handlers():
            try:
                await self._running
            except asyncio.CancelledError:
                if self._step < 2:  # noqa: PLR2004 - the second signal
                    raise
            except Exception as error:
                if self._step < 2:  # noqa: PLR2004
                    raise
                self._output.error(f"during forced shutdown: {type(error).__name__}: {error}")
            finally:
                if self._step < 2:  # noqa: PLR2004 - else the thread runs until the process ends
                    self._requests.put(StopRequest.DONE)

    async def _work(self) -> None:
        retry = not self._worker.config.burst
        if await wait_for_store(self._app, self._stopping, retry=retry):
            await self._worker.run()

    def finish(self) -> None:
        """Act as on the first signal: claim no more jobs; running ones get the grace period."""
        self._stopping.set()
        self._worker.stop()

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Install Python signal handlers: asyncio's would wait for a blocked event loop."""

        def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            request = StopRequest.FINISH if self._supervised else StopRequest.NEXT
            self._requests.put(request)

        previous = {number: signal.signal(number, on_signal) for number in SIGNALS}
        if signal.getsignal(WAKE_SIGNAL) is signal.SIG_DFL:  # the default ignores it
            previous[WAKE_SIGNAL] = signal.signal(WAKE_SIGNAL, lambda *_: None)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # -- on its own thread

    def _handle_requests(self) -> None:
        deadline: float | None = None
        while (request := self._next(deadline)) is not StopRequest.DONE:
            steps = {StopRequest.FINISH: 1, StopRequest.FORCE: 2}
            step = steps.get(request, self._step + 1)
            if step > self._step:
                self._step = step
                deadline = time.monotonic() + self._start_step(step)

    def _next(self, deadline: float | None) -> StopRequest:
        """Wait for the next request, or for the deadline, which is one step further."""
        if deadline is None:
            return self._requests.get()
        while (remaining := deadline - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                return self._requests.get(timeout=min(remaining, WAKE_INTERVAL))
            # A signal just before a blocking call does not interrupt it, and Python's handler waits
            # for the call to end. This signal interrupts it.
            signal.pthread_kill(self._main_thread, WAKE_SIGNAL)
        return StopRequest.NEXT

    def _start_step(self, step: int) -> float:
        """Start a step, then report it; return how many seconds it may take."""
        config = self._worker.config
        if step == 1:
            self._call_on_loop(self.finish)
            self._print(
                f"Shutting down: waiting up to {config.grace:g} s for running jobs "
                "(Ctrl-C again to force)"
            )
            return config.grace + config.release_timeout + FORCE_TIMEOUT
        if step == 2:  # noqa: PLR2004
            assert self._running is not None
            self._call_on_loop(self._running.cancel)
            self._print("Forced shutdown: running jobs requeued (attempt not counted)")
            return config.release_timeout + FORCE_TIMEOUT
        self._exit()
        return 0.0

    def _call_on_loop(self, function: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function)

    def _print(self, message: str) -> None:
        if not self._quiet:
            self._output.print(message)

    def _exit(self) -> None:
        name, jobs = self._worker.config.name, self._running_jobs()
        self._output.warn(f"worker {name} did not stop in time and exits now; {jobs}")
        self._output.put(_show_cursor)
        self._output.flush()
        os._exit(terminal.FAILED)

    def _running_jobs(self) -> str:
        """Describe the jobs that still run here, if the store responds soon."""
        found: list[str] = []
        query = Thread(target=lambda: found.extend(asyncio.run(self._find_jobs())), daemon=True)
        query.start()
        query.join(STORE_TIMEOUT)
        if not found:
            return "running jobs will be retried after lease expiry"
        more = f" and {len(found) - MAX_LISTED} more" * (len(found) > MAX_LISTED)
        return f"will be retried after lease expiry: {', '.join(found[:MAX_LISTED])}{more}"

    async def _find_jobs(self) -> list[str]:
        name = self._worker.config.name
        query = JobQuery(states=frozenset({State.RUNNING}), worker=name)
        page = await self._app.client().store.find(query)
        return [f"{row.id} ({row.task})" for row in page.rows]


def _show_cursor() -> None:
    """Show the cursor, which a live view may have hidden."""
    if sys.__stdout__ is not None and sys.__stdout__.isatty():
        sys.__stdout__.write(SHOW_CURSOR)
        sys.__stdout__.flush()
