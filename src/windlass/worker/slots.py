"""Slots of a worker: which claimed jobs run, which wait, and how many to claim ahead.

A queue never runs more jobs than it has slots. Jobs that its slots would finish within
`PREFETCH_SECONDS` at the current rate are claimed ahead: quick jobs in large batches, slow jobs one
by one. A prefetched job is released for other workers after `MAX_PREFETCH_WAIT`. A job that was
running when a worker died is never prefetched: a crash of this worker would count for that job,
although it did not run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from windlass.task_spec import Registry
from windlass.worker.batch.batch_call import BatchCall
from windlass.worker.batch.collector import BatchCollector
from windlass.worker.config import WorkerConfig
from windlass.worker.execution.attempt_runner import AttemptRunner
from windlass.worker.running_attempts import RunningAttempt

PREFETCH_SECONDS = 0.1  # seconds of work to claim ahead
MAX_PREFETCH = 1000  # jobs per queue
MAX_PREFETCH_WAIT = 1.0  # seconds between claim and start of a prefetched job


class QueueSlots:
    """Slots of one queue: free slots, claimed jobs that wait, and the prefetch."""

    __slots__ = (
        "batch_extra",
        "batch_wanted",
        "ended",
        "filling",
        "free",
        "has_crashed_jobs",
        "measured_at",
        "prefetch",
        "queue",
        "ready",
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
        self.has_crashed_jobs = False  # the last claim returned jobs that ran when a worker died
        self.filling = False

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


class WorkerSlots:
    """Slots of all queues of a worker. Claimed jobs wait here until a slot is free."""

    def __init__(self, runner: AttemptRunner, tasks: Registry, config: WorkerConfig) -> None:
        self._runner = runner
        self._collector = BatchCollector(
            tasks, self._batch_ready, wait_for_batch=config.wait_for_batch
        )
        self.queues = {queue: QueueSlots(queue, count) for queue, count in config.queues.items()}
        self.stopping = asyncio.Event()
        self.capacity = asyncio.Event()  # set when a queue may have capacity
        self._backlog = 0  # claimed jobs that wait for a slot, in all queues
        self.no_backlog = asyncio.Event()  # set while no claimed job waits for a slot
        self.no_backlog.set()

    def stop(self) -> None:
        """Start no more jobs."""
        self.stopping.set()
        self.capacity.set()

    @property
    def free(self) -> int:
        """How many slots are free."""
        return sum(slots.free for slots in self.queues.values())

    def wanted(self) -> list[tuple[str, int]]:
        """Return the queues with capacity, with the number of jobs to claim."""
        return [(slots.queue, count) for slots in self.queues.values() if (count := slots.to_claim)]

    def accept(self, attempts: Sequence[RunningAttempt], wanted: list[tuple[str, int]]) -> bool:
        """Start claimed jobs in free slots; the others wait.

        Return whether a queue may hold more jobs: the claim returned as many as it wanted.
        """
        missing = dict(wanted)
        self._add(attempts, missing)
        if not self.stopping.is_set():  # else all of them are released
            for queue, count in missing.items():
                slots = self.queues[queue]
                self._fill(slots)
                if slots.has_crashed_jobs:
                    self.release(attempt for attempt in slots.ready if attempt.job.isolated)
                if self._collector.needed:
                    self._fill_batches(slots, more=count <= 0)
        self._update_no_backlog()
        return any(count <= 0 for count in missing.values())

    def _add(self, attempts: Sequence[RunningAttempt], missing: dict[str, int]) -> None:
        """Add claimed jobs to their queues, and subtract them from the `missing` ones."""
        collecting = self._collector.needed
        for slots in self.queues.values():
            slots.has_crashed_jobs = False
        for attempt in attempts:
            job = attempt.job
            slots = self.queues[job.queue]
            if job.queue in missing:  # a repeated claim may return jobs of other queues
                missing[job.queue] -= 1
            if job.crash_count:
                slots.has_crashed_jobs = True
            if not (collecting and self._collector.add(attempt)):
                slots.ready.append(attempt)
                self._backlog += 1
        if collecting:
            for slots in self.queues.values():
                self._update_batch_counts(slots)

    def _fill(self, slots: QueueSlots) -> None:
        """Start waiting jobs while slots are free."""
        if slots.filling:  # an eager task has ended within `create_task`: the outer call continues
            return
        slots.filling = True
        try:
            while slots.free > 0 and slots.ready:
                slots.free -= 1
                self._backlog -= 1
                self._start(slots.ready.popleft(), slots)
        finally:
            slots.filling = False

    def _start(self, attempt: RunningAttempt, slots: QueueSlots) -> None:
        """Start an attempt, or all attempts of its batch."""
        loop = asyncio.get_running_loop()
        if attempt.batch_call is None:
            attempt.task = loop.create_task(self._run(attempt, slots))
            return
        self._collector.started(attempt.batch_call)
        self._update_batch_counts(slots)
        for member in attempt.batch_call.attempts:
            member.task = loop.create_task(self._run(member, slots))

    async def _run(self, attempt: RunningAttempt, slots: QueueSlots) -> None:
        """Run an attempt and free its slot. A batch holds one slot until its last job has ended."""
        call = attempt.batch_call
        try:
            await self._runner.run(attempt)
        finally:
            if call is None or call.end_attempt(attempt):
                slots.free += 1
                slots.ended += 1 if call is None else len(call.attempts)
                if slots.ready and not self.stopping.is_set():
                    self._fill(slots)
                    if not self._backlog:
                        self.no_backlog.set()
                if not self.capacity.is_set() and slots.to_claim:
                    self.capacity.set()

    # -- batches

    def _batch_ready(self, call: BatchCall) -> None:
        """Queue a batch for a slot; until it starts, it may still grow."""
        first = call.attempts[0]
        first.claimed_at = asyncio.get_running_loop().time()
        slots = self.queues[first.job.queue]
        slots.ready.append(first)
        self._backlog += 1
        self._update_batch_counts(slots)
        if not self.stopping.is_set():
            self._fill(slots)
            self._update_no_backlog()
            if slots.to_claim:
                self.capacity.set()

    def _update_batch_counts(self, slots: QueueSlots) -> None:
        slots.batch_wanted = self._collector.wanted(slots.queue)
        calls = [attempt.batch_call for attempt in slots.ready if attempt.batch_call is not None]
        slots.batch_extra = sum(len(call.attempts) - 1 for call in calls)

    def _fill_batches(self, slots: QueueSlots, *, more: bool) -> None:
        """Start batches that need not wait; release surplus jobs of other tasks."""
        single = [attempt for attempt in slots.ready if attempt.batch_call is None]
        surplus = len(single) - slots.prefetch
        if slots.batch_wanted and surplus > 0:
            self._collector.stop_filling(slots.queue)
            self.release(single[-surplus:])
        self._update_batch_counts(slots)
        more = more and bool(slots.batch_wanted and slots.to_claim)
        self._collector.after_claim(slots.queue, more=more)

    # -- releasing claimed jobs

    async def release_overdue(self, busy: asyncio.Event) -> None:
        """Release jobs that waited too long for a slot, oldest first, until cancelled."""
        while True:
            await busy.wait()
            await asyncio.sleep(MAX_PREFETCH_WAIT / 2)
            limit = asyncio.get_running_loop().time() - MAX_PREFETCH_WAIT
            for slots in self.queues.values():
                overdue = [attempt for attempt in slots.ready if attempt.claimed_at < limit]
                if overdue:
                    slots.prefetch = 0
                    self.release(overdue)

    def release(self, attempts: Iterable[RunningAttempt]) -> None:
        """Requeue waiting jobs, with all members of their batches."""
        for attempt in list(attempts):
            slots = self.queues[attempt.job.queue]
            slots.ready.remove(attempt)
            self._backlog -= 1
            if attempt.batch_call is None:
                self._runner.release(attempt)
                continue
            self._collector.started(attempt.batch_call)
            self._update_batch_counts(slots)
            for member in attempt.batch_call.attempts:
                self._runner.release(member)
        self._update_no_backlog()

    def release_all(self) -> None:
        self.release(attempt for slots in self.queues.values() for attempt in slots.ready)
        for attempt in self._collector.close_all():
            self._runner.release(attempt)

    def _update_no_backlog(self) -> None:
        if self._backlog:
            self.no_backlog.clear()
        else:
            self.no_backlog.set()
