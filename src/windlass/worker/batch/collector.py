"""Collects jobs of batch tasks until a call can start with all of them.

Waits for: more jobs, until a batch is full or its first job has waited for the task's `wait`.
Without `wait`: until no more jobs can be claimed. Collected jobs hold no slot; a call holds one
slot. Guarantees: a job that was running when a worker died is never collected. Stops: collected
jobs are released immediately. After a crash, leases expire. `batch_call` runs the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from windlass.task_spec import Registry, TaskSpec
from windlass.worker.batch.batch_call import BatchCall
from windlass.worker.batch.batch_spec import BatchSpec
from windlass.worker.running_attempts import RunningAttempt

log = logging.getLogger("windlass.worker")


class BatchCollector:
    """`on_ready` is called for a batch that can start as soon as a slot is free.

    Without `wait_for_batch`, the `wait` of tasks is ignored.
    """

    def __init__(
        self, tasks: Registry, on_ready: Callable[[BatchCall], None], *, wait_for_batch: bool = True
    ) -> None:
        self._tasks = tasks
        self._on_ready = on_ready
        self._wait_for_batch = wait_for_batch
        self._open: dict[
            tuple[str, str], BatchCall
        ] = {}  # batches that may still grow, by queue and task
        self.needed = any(isinstance(spec, BatchSpec) for spec in tasks)

    def add(self, attempt: RunningAttempt) -> bool:
        """Add an attempt to a batch; return False if it must run alone."""
        job = attempt.job
        spec: TaskSpec | None = self._tasks.get(job.task)
        if not isinstance(spec, BatchSpec) or job.crash_count:
            return False
        key = (job.queue, spec.name)
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = BatchCall(spec)
            if wait := self._wait_of(spec):
                call.timer = asyncio.get_running_loop().call_later(wait, self._mark_ready, call)
        call.add(attempt)
        if not call.missing:
            self._close(call)
            self._mark_ready(call)
        return True

    def _wait_of(self, spec: BatchSpec) -> float:
        return spec.wait if self._wait_for_batch else 0.0

    def _mark_ready(self, call: BatchCall) -> None:
        if call.timer is not None:
            call.timer.cancel()
        if not call.ready:
            call.ready = True
            self._on_ready(call)

    def after_claim(self, queue: str, *, more: bool) -> None:
        """Handle the result of a claim; `more` is whether the queue may hold further jobs.

        A batch without a `wait` gets one more claim to fill it, if there may be further jobs.
        """
        for call in list(self._calls_of(queue)):
            if not self._wait_of(call.spec) and (call.claim_made or not more):
                self._mark_ready(call)
            call.claim_made = True

    def stop_filling(self, queue: str) -> None:
        """Claim no more jobs for open batches: the queue returns jobs of other tasks."""
        for call in self._calls_of(queue):
            call.filling_stopped = True

    def wanted(self, queue: str) -> int:
        """How many jobs open batches lack, beyond those that the slots could run."""
        return sum(
            call.missing
            for call in self._calls_of(queue)
            if not (call.ready or call.filling_stopped)
        )

    def started(self, call: BatchCall) -> None:
        self._close(call)

    def close_all(self) -> list[RunningAttempt]:
        """Close all batches that wait for more jobs; return their attempts."""
        calls = [call for call in self._open.values() if not call.ready]
        for call in calls:
            if call.timer is not None:
                call.timer.cancel()
        self._open.clear()
        return [attempt for call in calls for attempt in call.attempts]

    def _calls_of(self, queue: str) -> Iterator[BatchCall]:
        return (call for (call_queue, _), call in self._open.items() if call_queue == queue)

    def _close(self, call: BatchCall) -> None:
        key = (call.attempts[0].job.queue, call.spec.name)
        if self._open.get(key) is call:
            del self._open[key]
