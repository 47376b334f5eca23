"""Extends the leases of running attempts, on a separate thread.

Waits for: a third of the shortest lease it holds. Guarantees: a blocked event loop or a busy task
loses no lease, because the keeper has its own thread, loop and store handle. The worker learns of a
lost lease or an accepted cancel at the next extension. Stops: on request, after its current call.
After a crash, leases expire and a sweep rescues the jobs.
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
from windlass.worker.loops.outage_log import OutageLog

Join: TypeAlias = Callable[[float | None], Awaitable[None]]
LoopStarter: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], Join]
"""Starts a coroutine on its own event loop; returns a function that joins it, with a timeout."""


def start_on_thread(name: str, work: Coroutine[Any, Any, None]) -> Join:
    worker_loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        try:
            asyncio.run(work)
        finally:
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed
                worker_loop.call_soon_threadsafe(ended.set)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()

    async def join(timeout: float | None) -> None:
        """Join without the default executor: abandoned tasks may hold all its threads."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await ended.wait()
            thread.join(1)  # its work is done

    return join


@dataclass(slots=True, eq=False)
class _Extension:
    """Lease length and time of the next extension, shared by leases that were claimed together."""

    seconds: float
    due: float  # by the keeper's clock


class Keeper:
    """`on_lost` and `on_cancel` are called on the keeper's thread. Methods are thread-safe."""

    def __init__(
        self,
        store: Store,
        *,
        on_lost: Callable[[Lease], object],
        on_cancel: Callable[[Lease], object],
        start_loop: LoopStarter = start_on_thread,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._start_loop = start_loop
        self._clock = clock
        self._lock = Lock()
        self._outages = OutageLog("Extending leases", clock=clock)
        self._held: dict[Lease, _Extension] = {}
        self._wake_at = math.inf  # end of the current sleep
        self._stopped = False
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._join = self._start_loop("windlass-keeper", self._run())

    async def stop(self, timeout: float | None = None) -> None:
        """Stop, at the latest after the timeout: a store call without a response is abandoned."""
        with self._lock:
            self._stopped = True
            self._wake()
        await self._join(timeout)

    def hold(self, lease: Lease, seconds: float, ago: float = 0.0) -> None:
        """Extend a lease from now on; `ago` is how many seconds ago its claim was sent."""
        self.hold_all({lease: None}, seconds, ago)

    def hold_all(self, leases: Mapping[Lease, object], seconds: float, ago: float = 0.0) -> None:
        """Hold the keys of a mapping: a dict need not hash them again."""
        due = self._clock() - ago + seconds / 3
        with self._lock:
            self._held |= dict.fromkeys(leases, _Extension(seconds, due))
            if due < self._wake_at:  # otherwise no wake-up: one for each job is too expensive
                self._wake_at = due
                self._wake()

    def drop(self, *leases: Lease) -> None:
        with self._lock:
            for lease in leases:
                self._held.pop(lease, None)

    def _wake(self) -> None:
        if self._loop is not None:  # else the thread has not started yet
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(self._changed.set)

    # -- on the keeper's loop

    async def _run(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        while (due := await self._next_due()) is not None:
            for seconds, group in due.items():
                await self._extend(group, seconds)
        self._outages.log_recovery()
        await self._store.close()

    async def _next_due(self) -> dict[float, dict[Lease, _Extension]] | None:
        """Wait until a lease is due; return it and those due soon, grouped by lease length.

        Return None to stop.
        """
        while True:
            with self._lock:
                if self._stopped:
                    return None
                now = self._clock()
                first = min((extension.due for extension in self._held.values()), default=math.inf)
                if first <= now:
                    soon: dict[float, dict[Lease, _Extension]] = {}
                    for lease, extension in self._held.items():
                        if extension.due <= now + extension.seconds / 6:
                            group = soon.setdefault(extension.seconds, {})
                            group[lease] = extension
                    return dict(sorted(soon.items()))
                self._wake_at = first
                self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if first == math.inf else first - now):
                    await self._changed.wait()

    async def _extend(self, group: Mapping[Lease, _Extension], seconds: float) -> None:
        sent_at = self._clock()
        try:
            results = await self._store.extend(list(group), seconds)
        except Exception as error:  # noqa: BLE001 - a dead keeper would lose every lease
            self._outages.failed(error, f"Extending {len(group)} leases")
            for extension in group.values():
                extension.due = self._clock() + seconds / 10
            return
        self._outages.succeeded()
        for (lease, extension), result in zip(group.items(), results, strict=True):
            extension.due = sent_at + seconds / 3
            if result.stale:
                self.drop(lease)
                self._on_lost(lease)
            elif result.cancel_requested:
                self._on_cancel(lease)
