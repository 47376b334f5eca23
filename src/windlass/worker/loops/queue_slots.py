"""Slots of one queue in a worker: free slots, claimed jobs that wait, and the prefetch."""

from __future__ import annotations

from collections import deque

from windlass.worker.running_attempt import RunningAttempt

PREFETCH_SECONDS = 0.1  # seconds of work to claim ahead
MAX_PREFETCH = 1000  # jobs per queue


class QueueSlots:
    __slots__ = (
        "batch_extra", "batch_wanted", "ended", "filling", "free", "has_crashed_jobs",
        "measured_at", "prefetch", "queue", "ready",
    )  # fmt: skip

    def __init__(self, queue: str, slots: int) -> None:
        self.queue = queue
        self.free = slots
        self.ready: deque[RunningAttempt] = deque()  # a batch is represented by its first attempt
        self.batch_extra = 0  # further jobs of the batches in `ready`
        self.batch_wanted = 0  # jobs that collecting batches still lack
        self.prefetch = 0  # how many jobs to claim ahead of the slots
        self.measured_at = 0.0  # when `prefetch` was last computed
        self.ended = 0  # jobs ended since then
        self.filling = False
        self.has_crashed_jobs = False  # the last claim returned jobs that ran when a worker died

    @property
    def to_claim(self) -> int:
        """How many jobs to claim now; 0 while half of the prefetch is left, to claim in batches."""
        waiting = len(self.ready) + self.batch_extra
        if waiting and 2 * waiting > self.prefetch:
            return 0
        return self.free + self.prefetch - waiting + self.batch_wanted

    def update_prefetch(self, now: float) -> None:
        """Set the prefetch from the recent completion rate.

        A short interval is not measured: right after a claim for empty slots, hardly any job can
        have ended.
        """
        elapsed = max(now - self.measured_at, 1e-6)
        if self.has_crashed_jobs:
            self.prefetch = 0
        elif elapsed < PREFETCH_SECONDS and self.ended < self.prefetch:
            return
        else:
            self.prefetch = min(MAX_PREFETCH, int(self.ended / elapsed * PREFETCH_SECONDS))
        self.measured_at, self.ended = now, 0
