"""Keeps the leases of running attempts alive, apart from the tasks.

Waits for: a third of the shortest lease it holds. Guarantees: a blocked event loop or a busy task
loses no lease, because this runs on a thread with its own loop and store handle; a lost lease or an
accepted cancel reaches the worker at the next extension. Stops: when told, after its current call.
A crash leaves leases to run out, and rescue takes the jobs back.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import Condition, Thread

from windlass.core.lease import Lease
from windlass.store import Store

log = logging.getLogger("windlass.worker")


@dataclass(slots=True)
class _Held:
    lease: Lease
    seconds: float
    due: float  # when to extend it, on this machine's monotonic clock


class Keeper:
    """`on_lost` and `on_cancel` are called on the keeper's thread."""

    def __init__(
        self,
        store: Store,
        *,
        on_lost: Callable[[Lease], object],
        on_cancel: Callable[[Lease], object],
    ) -> None:
        self._store = store
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._changed = Condition()
        self._held: dict[Lease, _Held] = {}
        self._wakes = math.inf  # when the thread looks again by itself
        self._stopped = False
        self._thread = Thread(target=self._run, name="windlass-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """With a timeout, a call that the store does not answer is left behind."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout)

    def hold(self, lease: Lease, seconds: float, since: float | None = None) -> None:
        """`since` is when the lease was asked for, by the monotonic clock: it began no earlier."""
        self.hold_all([(lease, seconds)], since)

    def hold_all(self, leases: Iterable[tuple[Lease, float]], since: float | None = None) -> None:
        start = time.monotonic() if since is None else since
        with self._changed:
            for lease, seconds in leases:
                due = start + seconds / 3
                self._held[lease] = _Held(lease, seconds, due)
                if due < self._wakes:  # only then: to wake a thread for each job would cost more
                    self._wakes = due
                    self._changed.notify()

    def let_go(self, *leases: Lease) -> None:
        with self._changed:
            for lease in leases:
                self._held.pop(lease, None)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while (due := self._next()) is not None:
                for seconds, group in groupby(due, key=lambda held: held.seconds):
                    runner.run(self._extend(list(group), seconds))
            runner.run(self._store.close())

    def _next(self) -> list[_Held] | None:
        """Wait until one is due; the others that soon will be go with it. None: stop."""
        with self._changed:
            while not self._stopped:
                first = min((held.due for held in self._held.values()), default=None)
                now = time.monotonic()
                if first is not None and first <= now:
                    soon = [h for h in self._held.values() if h.due <= now + h.seconds / 6]
                    return sorted(soon, key=lambda held: held.seconds)
                self._wakes = math.inf if first is None else first
                self._changed.wait(None if first is None else first - now)
        return None

    async def _extend(self, group: Sequence[_Held], seconds: float) -> None:
        asked = time.monotonic()
        try:
            answers = await self._store.extend([held.lease for held in group], seconds)
        except Exception as error:  # noqa: BLE001 - a keeper that dies takes every lease along
            log.warning("could not extend %d leases, trying again: %s", len(group), error)
            for held in group:
                held.due = time.monotonic() + seconds / 10
            return
        for held, answer in zip(group, answers, strict=True):
            held.due = asked + seconds / 3
            if answer.stale:
                self.let_go(held.lease)
                self._on_lost(held.lease)
            elif answer.cancel_requested:
                self._on_cancel(held.lease)
