"""How a worker process ends: asked, then told, then simply ended.

The first signal lets the running jobs finish for the grace. The second, or the grace and a little
more, gives them back. The third, or a little later, ends the process whatever tasks, threads or the
store do; what still runs is left to its lease. A thread of its own sees to it, because a task may
block the event loop; and it waits for nobody who should read what it says.

Under a supervisor every signal is the first one; the second comes by the pipe (`lifeline`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto
from queue import Empty, SimpleQueue
from threading import Thread, get_ident
from types import FrameType
from typing import Any, TypeAlias

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.output_queue import Voice
from windlass.cli.store_wait import reach
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.worker import Worker
from windlass.worker.supervised_process import follow
from windlass.worker.supervisor import LAST

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NUDGE, NUDGE_EVERY = signal.SIGURG, 0.2  # seconds
ASK_STORE = 1.0
MANY = 5
SHOW_CURSOR = "\x1b[?25h"


class Ask(Enum):
    MORE = auto()  # one step further than before
    FINISH = auto()  # the first step, however often it is said
    AT_ONCE = auto()  # the second
    OVER = auto()  # nothing is left to be stopped


Asks: TypeAlias = SimpleQueue[Ask]
"""Safe to fill from any thread, and in a signal's handler."""


def asks_of(supervised: str) -> Asks:
    """What the supervisor asks of this worker, from now on; the text is what it gave along."""
    asks: Asks = SimpleQueue()
    follow(int(supervised.partition(":")[0]), lambda: asks.put(Ask.AT_ONCE))
    return asks


class Stopper:
    """Runs one worker, and ends it when signals come, or when a supervisor asks.

    `asks` are the supervisor's: what it said before this began is in there, too. A `quiet` one
    leaves it to the supervisor to say that all are stopping.
    """

    def __init__(
        self,
        app: Windlass,
        worker: Worker,
        voice: Voice,
        *,
        asks: Asks | None = None,
        quiet: bool = False,
    ) -> None:
        self._quiet = quiet
        self._app = app
        self._worker = worker
        self._voice = voice
        self._supervised = asks is not None
        self._asks: Asks = SimpleQueue() if asks is None else asks
        self._asked = 0
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._main = get_ident()
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the worker has ended; what its lifespan raised on the way out is told."""
        self._running = self._loop.create_task(self._work())
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
                self._voice.complain(f"while stopping at once: {type(error).__name__}: {error}")
            finally:
                if self._asked < 2:  # noqa: PLR2004 - else it watches on until the process is gone
                    self._asks.put(Ask.OVER)

    async def _work(self) -> None:
        if await reach(self._app, self._stopping, patient=not self._worker.config.burst):
            await self._worker.run()

    def finish(self) -> None:
        """As the first signal does: no more jobs; those that run have the grace to end."""
        self._stopping.set()
        self._worker.stop()

    @contextlib.contextmanager
    def _handling(self) -> Iterator[None]:
        """Handlers of Python's own: those of a loop wait for it, and a task may block it."""

        def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            self._asks.put(Ask.FINISH if self._supervised else Ask.MORE)

        before = {number: signal.signal(number, on_signal) for number in SIGNALS}
        if signal.getsignal(NUDGE) is signal.SIG_DFL:  # which is to ignore it
            before[NUDGE] = signal.signal(NUDGE, lambda *_: None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- on its own thread

    def _attend(self) -> None:
        deadline: float | None = None
        while (ask := self._next(deadline)) is not Ask.OVER:
            step = {Ask.FINISH: 1, Ask.AT_ONCE: 2}.get(ask, self._asked + 1)
            if step > self._asked:
                self._asked = step
                deadline = time.monotonic() + self._take(step)

    def _next(self, deadline: float | None) -> Ask:
        """Wait for what is asked, or for the time to go a step further."""
        if deadline is None:
            return self._asks.get()
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                return self._asks.get(timeout=min(left, NUDGE_EVERY))
            # A signal that came just before a blocking call has not interrupted it, and Python's
            # handler waits for the call to end. This does interrupt it.
            signal.pthread_kill(self._main, NUDGE)
        return Ask.MORE

    def _take(self, step: int) -> float:
        """Answers how long it may last. First it is done, then it is told."""
        config = self._worker.config
        if step == 1:
            self._tell(self.finish)
            self._say(f"stopping: running jobs have {config.grace:g} s to end; once more: at once")
            return config.grace + config.release + LAST
        if step == 2:  # noqa: PLR2004
            assert self._running is not None
            self._tell(self._running.cancel)
            self._say("stopping at once: what still runs is given back, uncounted")
            return config.release + LAST
        self._end()
        return 0.0

    def _tell(self, act: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
            self._loop.call_soon_threadsafe(act)

    def _say(self, message: str) -> None:
        if not self._quiet:
            self._voice.say(message)

    def _end(self) -> None:
        name, left = self._worker.config.name, self._left()
        self._voice.warn(f"worker {name} does not end, so its process does; {left}")
        self._voice.do(_show_cursor)
        self._voice.finish()
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


def _show_cursor() -> None:
    """A live view may have hidden it."""
    if sys.__stdout__ is not None and sys.__stdout__.isatty():
        sys.__stdout__.write(SHOW_CURSOR)
        sys.__stdout__.flush()
