"""How a worker process ends: asked, then told, then simply ended.

The first signal lets the running jobs finish for the grace. The second, or the grace and a little
more, gives them back. The third, or a little later, ends the process whatever tasks, threads or the
store do; what still runs is left to its lease. A thread of its own sees to it, because a task may
block the event loop.
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
from threading import Thread
from types import FrameType
from typing import Any

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.core.query import Query
from windlass.core.state import State
from windlass.worker import Worker
from windlass.worker.supervisor import LAST

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ECHO = 1.0  # seconds
ASK_STORE = 1.0
MANY = 5
SHOW_CURSOR = "\x1b[?25h"


class Stopper:
    """Runs one worker, and ends it when signals come; `say` tells the user so.

    A supervised one may hear the same signal twice, from a service manager that tells every process
    and from its supervisor: what comes within `ECHO` of another is the same.
    """

    def __init__(
        self,
        app: Windlass,
        worker: Worker,
        say: Callable[[str], None] = terminal.say,
        *,
        supervised: bool = False,
    ) -> None:
        self._supervised = supervised
        self._heard = -ECHO
        self._app = app
        self._worker = worker
        self._told = say
        self._asked = 0
        self._asks: SimpleQueue[bool] = SimpleQueue()  # safe to fill in a signal's handler
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the worker has ended; what its lifespan raised on the way out is told."""
        self._running = self._loop.create_task(self._worker.run())
        Thread(target=self._attend, name="windlass-stopper", daemon=True).start()
        with self._handling():
            try:
                await self._running
            except asyncio.CancelledError:
                if self._asked < 2:  # noqa: PLR2004 - the second signal
                    raise
            except Exception as error:
                if self._asked < 2:  # noqa: PLR2004
                    raise
                terminal.complain(f"while stopping at once: {type(error).__name__}: {error}")
            finally:
                if self._asked < 2:  # noqa: PLR2004 - else it watches on until the process is gone
                    self._asks.put(False)

    @contextlib.contextmanager
    def _handling(self) -> Iterator[None]:
        """Handlers of Python's own: those of a loop wait for it, and a task may block it."""

        def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            echo = self._supervised and time.monotonic() < self._heard + ECHO
            self._heard = time.monotonic()
            if not echo:
                self._asks.put(True)

        before = {number: signal.signal(number, on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- on its own thread

    def _attend(self) -> None:
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            with contextlib.suppress(Empty):
                if not self._asks.get(timeout=left):
                    return
            self._asked += 1
            if self._asked == 1:
                grace = self._worker.config.grace
                self._say(f"stopping: running jobs have {grace:g} s to end; once more: at once")
                deadline = time.monotonic() + grace + self._worker.config.release + LAST
                self._tell(self._worker.stop)
            elif self._asked == 2:  # noqa: PLR2004
                self._say("stopping at once: what still runs is given back, uncounted")
                deadline = time.monotonic() + self._worker.config.release + LAST
                assert self._running is not None
                self._tell(self._running.cancel)
            else:
                self._end()

    def _tell(self, act: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
            self._loop.call_soon_threadsafe(act)

    def _say(self, message: str) -> None:
        with contextlib.suppress(OSError):  # nobody may be there to read it any more
            self._told(message)

    def _end(self) -> None:
        name, left = self._worker.config.name, self._left()
        with contextlib.suppress(OSError, ValueError):
            terminal.warn(f"worker {name} does not end, so its process does; {left}")
            if sys.__stdout__ is not None and sys.__stdout__.isatty():
                sys.__stdout__.write(SHOW_CURSOR)  # a live view may have hidden it
                sys.__stdout__.flush()
            sys.stderr.flush()
        os._exit(terminal.FAILED)

    def _left(self) -> str:
        """Which jobs still run here, if the store can say so soon."""
        found: list[str] = []
        asking = Thread(target=lambda: found.extend(asyncio.run(self._jobs())), daemon=True)
        asking.start()
        asking.join(ASK_STORE)
        if not found:
            return "what still runs is left to its lease"
        jobs = ", ".join(found[:MANY]) + (f" and {len(found) - MANY} more" * (len(found) > MANY))
        return f"left to their leases: {jobs}"

    async def _jobs(self) -> list[str]:
        name = self._worker.config.name
        query = Query(states=frozenset({State.RUNNING}), worker=name)
        page = await self._app.client().store.find(query)
        return [f"{row.id} ({row.task})" for row in page.rows]
