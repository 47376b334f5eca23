"""The attempts of a worker, each from its claim until its outcome is stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, KeysView, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.core.decisions.transition import Transition
from windlass.core.errors import StoreError
from windlass.core.job.lease import DEFAULT_LEASE, Lease
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.worker.context import Context
from windlass.worker.loops.keeper import Keeper

if TYPE_CHECKING:
    from windlass.worker.batch.batch_call import BatchCall


class StopReason(StrEnum):
    """Why the worker stops an attempt before its task returns."""

    CANCEL = "cancel"  # a cancel was requested; it takes precedence
    RELEASE = "release"  # the worker shuts down, or claimed more than it can run
    LOST = "lost"  # the lease is lost: this worker must not settle the attempt


class RunningAttempt:
    """`task` and `context` are set at the start, `transition` at the end of the attempt."""

    __slots__ = (
        "batch_call", "claimed_at", "context", "job", "lease", "lease_check", "refused", "started",
        "stop_reason", "task", "transition",
    )  # fmt: skip

    def __init__(self, job: JobRow, lease: Lease, claimed_at: float) -> None:
        self.job = job
        self.lease = lease
        self.claimed_at = claimed_at
        self.batch_call: BatchCall | None = None  # shared with other jobs of a batch task
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.stop_reason: StopReason | None = None
        self.lease_check: asyncio.Task[None] | None = None  # reads whether the lease is lost
        self.started = False  # a task cancelled before its first step would never finish
        self.transition: Transition | None = None  # the outcome, not stored yet
        self.refused = False  # the store refused the task's own transition

    def request_stop(self, reason: StopReason) -> None:
        """Cancel the asyncio task, once per reason: it may have swallowed an earlier cancel.

        The first reason stays, except that a lost lease replaces any other.
        """
        previous = self.stop_reason
        if previous is None or reason is StopReason.LOST:
            self.stop_reason = reason
        if self.started and previous is not reason and self.task is not None:
            assert self.context is not None
            self.context.request_stop()
            self.task.cancel()


class RunningAttempts:
    """All attempts of a worker. Its keeper extends each lease until the outcome is stored."""

    keeper: Keeper

    def __init__(self, store: Store, lease: float | None = None) -> None:
        """`lease` is the length of all leases; None: each job has its own."""
        self._store = store
        self._fixed_lease = lease
        # By lease: a job can have two attempts here, a thread that lost its lease and the next one.
        self._by_lease: dict[Lease, RunningAttempt] = {}
        self.busy = asyncio.Event()  # set while there are attempts
        self.idle = asyncio.Event()  # set while there are none
        self.idle.set()

    def __len__(self) -> int:
        return len(self._by_lease)

    def __iter__(self) -> Iterator[RunningAttempt]:
        return iter(self._by_lease.values())

    @property
    def leases(self) -> KeysView[Lease]:
        return self._by_lease.keys()

    def register(self, jobs: Iterable[JobRow], sent_at: float) -> list[RunningAttempt]:
        """Add claimed jobs and hold their leases; `sent_at` is the loop time of the claim."""
        now = asyncio.get_running_loop().time()
        attempts = [RunningAttempt(job, job.lease, now) for job in jobs]
        by_length: dict[float, dict[Lease, RunningAttempt]] = {}
        for attempt in attempts:
            length = self._fixed_lease or attempt.job.lease_seconds or DEFAULT_LEASE
            by_length.setdefault(length, {})[attempt.lease] = attempt
        for length, group in by_length.items():
            self.keeper.hold_all(group, length, now - sent_at)
            self._by_lease |= group
        if attempts:
            self.idle.clear()
            self.busy.set()
        return attempts

    def forget(self, attempts: Sequence[RunningAttempt]) -> None:
        """Drop attempts that are settled or lost, with their leases."""
        leases = [attempt.lease for attempt in attempts]
        self.keeper.drop(*leases)
        for lease in leases:
            self._by_lease.pop(lease, None)
        if not self._by_lease:
            self.busy.clear()
            self.idle.set()

    def stop(self, lease: Lease, reason: StopReason) -> None:
        attempt = self._by_lease.get(lease)
        if attempt is not None:
            attempt.request_stop(reason)

    def lease_lost(self, lease: Lease) -> None:
        """Stop an attempt whose lease is lost."""
        attempt = self._by_lease.get(lease)
        context = attempt.context if attempt is not None else None
        if attempt is None or context is None or not context.settling:
            self.stop(lease, StopReason.LOST)
        elif attempt.lease_check is None:
            attempt.lease_check = asyncio.create_task(self._check_lease(attempt))

    async def _check_lease(self, attempt: RunningAttempt) -> None:
        """Stop an attempt, unless its task has stored its own success, which ends the lease."""
        with contextlib.suppress(StoreError):
            [row] = await self._store.get([attempt.job.id])
            if row is not None and row.state is State.SUCCEEDED and row.lease == attempt.lease:
                return
        attempt.request_stop(StopReason.LOST)
