"""Keeps the leases of running attempts alive, apart from the tasks.

Waits for: a third of the shortest lease it holds. Guarantees: a blocked event loop or a busy task
loses no lease, because this runs on a thread with its own loop and store handle; a lost lease or an
accepted cancel reaches the worker at the next extension. Stops: when told, after its current call.
A crash leaves leases to run out, and rescue takes the jobs back.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any, TypeAlias

from windlass.core.job.lease import Lease
from windlass.store import Store
from windlass.worker.loops.outage_log import Trouble

Join: TypeAlias = Callable[[float | None], Awaitable[None]]
Apart: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], Join]
"""Begins some work on an event loop of its own; what it answers waits for its end, or so long."""


def on_a_thread(name: str, work: Coroutine[Any, Any, None]) -> Join:
    here, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            asyncio.run(work)
        finally:
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                here.call_soon_threadsafe(ended.set)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()

    async def join(timeout: float | None) -> None:
        """Without the executor's help: tasks that were left behind may hold all its threads."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await ended.wait()
            thread.join(1)  # it has nothing left to do

    return join


@dataclass(slots=True, eq=False)
class _Held:
    """What leases that were given together have in common: they are extended together, too."""

    seconds: float
    due: float  # when to extend them, by the keeper's clock


class Keeper:
    """`on_lost` and `on_cancel` are called on the keeper's thread, the others from any."""

    def __init__(
        self,
        store: Store,
        *,
        on_lost: Callable[[Lease], object],
        on_cancel: Callable[[Lease], object],
        apart: Apart = on_a_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._apart = apart
        self._clock = clock
        self._lock = Lock()
        self._trouble = Trouble("extending leases", clock=clock)
        self._held: dict[Lease, _Held] = {}
        self._wakes = math.inf  # when it looks again by itself
        self._stopped = False
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._join = self._apart("windlass-keeper", self._run())

    async def stop(self, timeout: float | None = None) -> None:
        """With a timeout, a call that the store does not answer is left behind."""
        with self._lock:
            self._stopped = True
            self._wake()
        await self._join(timeout)

    def hold(self, lease: Lease, seconds: float, ago: float = 0.0) -> None:
        """`ago` is how long ago, in seconds, the lease was asked for: it began no earlier."""
        self.hold_all({lease: None}, seconds, ago)

    def hold_all(self, leases: Mapping[Lease, object], seconds: float, ago: float = 0.0) -> None:
        """The keys of a dict, for those need not be hashed again."""
        due = self._clock() - ago + seconds / 3
        with self._lock:
            self._held |= dict.fromkeys(leases, _Held(seconds, due))
            if due < self._wakes:  # only then: to wake a thread for each job would cost more
                self._wakes = due
                self._wake()

    def let_go(self, *leases: Lease) -> None:
        with self._lock:
            for lease in leases:
                self._held.pop(lease, None)

    def _wake(self) -> None:
        if self._loop is not None:  # else it has not looked yet
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody looks any more
                self._loop.call_soon_threadsafe(self._changed.set)

    # -- on its own loop

    async def _run(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        while (due := await self._next()) is not None:
            for seconds, group in due.items():
                await self._extend(group, seconds)
        self._trouble.done()
        await self._store.close()

    async def _next(self) -> dict[float, dict[Lease, _Held]] | None:
        """Wait until one is due; the others that soon will be go with it, by their length.

        None: stop.
        """
        while True:
            with self._lock:
                if self._stopped:
                    return None
                now = self._clock()
                first = min((held.due for held in self._held.values()), default=math.inf)
                if first <= now:
                    soon: dict[float, dict[Lease, _Held]] = {}
                    for lease, held in self._held.items():
                        if held.due <= now + held.seconds / 6:
                            soon.setdefault(held.seconds, {})[lease] = held
                    return dict(sorted(soon.items()))
                self._wakes = first
                self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if first == math.inf else first - now):
                    await self._changed.wait()

    async def _extend(self, group: Mapping[Lease, _Held], seconds: float) -> None:
        asked = self._clock()
        try:
            answers = await self._store.extend(list(group), seconds)
        except Exception as error:  # noqa: BLE001 - a keeper that dies takes every lease along
            self._trouble.met(error, f"extending {len(group)} leases")
            for held in group.values():
                held.due = self._clock() + seconds / 10
            return
        self._trouble.over()
        for (lease, held), answer in zip(group.items(), answers, strict=True):
            held.due = asked + seconds / 3
            if answer.stale:
                self.let_go(lease)
                self._on_lost(lease)
            elif answer.cancel_requested:
                self._on_cancel(lease)
