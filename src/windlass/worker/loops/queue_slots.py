"""One queue at a worker: its slots, what is claimed for them, and how much to claim ahead."""

from __future__ import annotations

from collections import deque

from windlass.worker.attempt import Attempt

AHEAD = 0.1  # seconds of work
MAX_AHEAD = 1000  # jobs of one queue


class Lane:
    __slots__ = (
        "beside", "careful", "company", "ended", "filling", "free", "queue", "ready", "since",
        "target",
    )  # fmt: skip

    def __init__(self, queue: str, slots: int) -> None:
        self.queue = queue
        self.free = slots
        self.ready: deque[Attempt] = deque()  # of a batch, the first stands for all
        self.beside = 0  # jobs that share a call with one of these
        self.company = 0  # jobs that would be welcome in calls that are being gathered
        self.target = 0  # how many to claim ahead
        self.since = 0.0  # when it last looked how many it ends
        self.ended = 0  # since then
        self.filling = False
        self.careful = False  # whether the last claim brought jobs that a worker may have died of

    @property
    def wants(self) -> int:
        """Nothing while half of what was claimed ahead is still there: batches, not drops."""
        waiting = len(self.ready) + self.beside
        if waiting and 2 * waiting > self.target:
            return 0
        return self.free + self.target - waiting + self.company

    def pace(self, now: float) -> None:
        """Look ahead as far as the ends of late allow.

        A look that is too short tells nothing: right after a claim that came when all slots were
        empty, hardly any job can have ended.
        """
        elapsed = max(now - self.since, 1e-6)
        if self.careful:
            self.target = 0
        elif elapsed < AHEAD and self.ended < self.target:
            return
        else:
            self.target = min(MAX_AHEAD, int(self.ended / elapsed * AHEAD))
        self.since, self.ended = now, 0
