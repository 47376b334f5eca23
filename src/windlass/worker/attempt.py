"""One attempt in a worker's hands, from its claim until its outcome is stored."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.core.decisions.transition import Transition
from windlass.core.job.lease import Lease
from windlass.core.job.row import JobRow
from windlass.worker.context import Context

if TYPE_CHECKING:
    from windlass.worker.batch.collector import Call


class Why(StrEnum):
    """What ends an attempt other than its task."""

    CANCEL = "cancel"  # somebody asked for it, and that wins
    RELEASE = "release"  # the worker is going away, or has claimed more than it can run
    LOST = "lost"  # the lease is gone: nothing may be said about it any more


class Attempt:
    """`task` and `context` are there once it has begun, `wish` once it has ended."""

    __slots__ = (
        "call", "claimed", "context", "doubt", "job", "lease", "refused", "started", "task", "why",
        "wish",
    )  # fmt: skip

    def __init__(self, job: JobRow, lease: Lease, claimed: float) -> None:
        self.job = job
        self.lease = lease
        self.claimed = claimed
        self.call: Call | None = None  # which it shares with other jobs of a batch task
        self.context: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.why: Why | None = None
        self.doubt: asyncio.Task[None] | None = None  # whether its lease is lost, or done with
        self.started = False  # a task that is cancelled before its first step would never end
        self.wish: Transition | None = None  # how it ended, on its way to the store
        self.refused = False  # what its task wanted could not be

    @property
    def lost(self) -> bool:
        return self.why is Why.LOST

    def end(self, why: Why) -> None:
        """Tell its task to stop, once for each reason: it may have swallowed the one before.

        The first reason stands, but for a lost lease, which overrules all.
        """
        before = self.why
        if before is None or why is Why.LOST:
            self.why = why
        if self.started and before is not why and self.task is not None:
            assert self.context is not None
            self.context.ask_to_stop()
            self.task.cancel()
