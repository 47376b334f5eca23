"""One attempt in a worker, from its claim until its outcome is stored, and its stop reason."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.core.decisions.transition import Transition
from windlass.core.job.lease import Lease
from windlass.core.job.row import JobRow
from windlass.worker.context import Context

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

    @property
    def lost(self) -> bool:
        return self.stop_reason is StopReason.LOST

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
