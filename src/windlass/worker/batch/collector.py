"""Collects jobs of batch tasks and calls the task once for all of them.

Waits for: more jobs, until a batch is full or its first job has waited for the task's `wait`.
Without `wait`: until no more jobs can be claimed. Collected jobs hold no slot; one call holds one.
Guarantees: each job stays its own attempt, with its own context, middleware, timeout, lease and
outcome, so the end of one does not affect the others. The call is cancelled when all its unsettled
jobs were asked to stop. The last job to be settled waits for the call's end, so that slot and lease
are held while it runs. A job that was running when a worker died is never collected. Stops:
collected jobs are released at once. After a crash, leases expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from types import TracebackType
from typing import Any

from windlass.core.job.lease import Lease
from windlass.task_spec import Registry, TaskSpec
from windlass.worker.batch.task import Batch, BatchSpec, Item
from windlass.worker.context import Context
from windlass.worker.running_attempt import RunningAttempt

log = logging.getLogger("windlass.worker")


class _Member:
    """A job that has joined a call; `released` is done when its attempt may end."""

    __slots__ = ("item", "released", "stop_requested")

    def __init__(self, item: Item[Any, Any], released: asyncio.Future[None]) -> None:
        self.item = item
        self.released = released
        self.stop_requested = False


class BatchCall:
    """One call of a batch task. Each of its attempts joins it, or ends without joining."""

    def __init__(self, spec: BatchSpec, leases: Iterable[Lease] = ()) -> None:
        self.spec = spec
        self.attempts: list[RunningAttempt] = []  # the first represents all in its QueueSlots
        self.ready = False  # waits only for a slot, not for more jobs
        self.crowded_out = False  # claims for it return jobs of other tasks
        self.claim_made = False  # one more claim was made to fill it
        self.timer: asyncio.TimerHandle | None = None
        self._expected = set(leases)  # attempts that have neither joined nor ended
        self._unended = len(self._expected)
        self._members: dict[_Member, None] = {}  # in order, until each is released
        self._active = 0  # members without a stop request
        self._running: asyncio.Task[None] | None = None
        self._cancelled = False  # all remaining members were asked to stop
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None

    @property
    def missing(self) -> int:
        return self.spec.size - len(self.attempts)

    def add(self, attempt: RunningAttempt) -> None:
        attempt.batch_call = self
        self.attempts.append(attempt)
        self._expected.add(attempt.lease)
        self._unended += 1

    # -- called by the attempts

    async def join(
        self, threads: Executor, context: Context, args: Any, limit: asyncio.Timeout
    ) -> Any:
        """Return this job's own result, or raise its own error."""
        loop = asyncio.get_running_loop()

        def on_settled(_: Item[Any, Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the worker has ended, only a thread is left
                loop.call_soon_threadsafe(self._settled, member)

        member = _Member(Item(args, context, on_settled), loop.create_future())
        self._members[member] = None
        self._active += 1
        self._threads = threads
        self._arrived(context.job.lease)
        try:
            await asyncio.wait({member.released})
        except asyncio.CancelledError:
            if limit.expired() and not self.spec.is_async:
                timeout = context.job.policy.timeout
                context.warn(
                    f"still running after its timeout of {timeout} s; a thread must return"
                )
            await self._leave(member)
            if not member.item.settled:  # its work may be half done
                raise
        return self._result_of(member.item)

    def end_attempt(self, attempt: RunningAttempt) -> bool:
        """Note that an attempt has ended, joined or not; return whether it was the last."""
        self._arrived(attempt.lease)
        self._unended -= 1
        return self._unended == 0

    def _arrived(self, lease: Lease) -> None:
        self._expected.discard(lease)
        if not self._expected and self._members and self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._ended)

    async def _leave(self, member: _Member) -> None:
        """Stop a member: wait until the task has settled it, or the call has ended."""
        member.item.ctx.request_stop()
        if self._running is None:  # the others run without it
            self._release(member)
            return
        if member in self._members:
            member.stop_requested = True
            self._active -= 1
            self._cancel_if_inactive()
        while not member.released.done():
            try:
                await asyncio.wait({member.released})
            except asyncio.CancelledError:  # asked again: the task may have swallowed the first
                self._cancel()

    def _settled(self, member: _Member) -> None:
        if len(self._members) > 1 and member in self._members:
            self._release(member)
            self._cancel_if_inactive()

    def _release(self, member: _Member) -> None:
        del self._members[member]
        self._active -= not member.stop_requested
        member.released.set_result(None)

    def _cancel_if_inactive(self) -> None:
        if not self._cancelled and not self._active:
            self._cancelled = True
            self._cancel()

    def _cancel(self) -> None:
        if self._cancelled and self._running is not None:
            self._running.cancel()

    def _result_of(self, item: Item[Any, Any]) -> Any:
        if item.settled:
            return item.outcome()
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)
        return None

    # -- running the call

    async def _run(self) -> None:
        batch = Batch(member.item for member in self._members)
        try:
            if self.spec.is_async:
                await self.spec.function(batch)
            else:
                await self._on_thread(batch)
        except BaseException as error:  # becomes the outcome of every unsettled job
            self._error, self._traceback = error, error.__traceback__
            if all(item.settled for item in batch) and isinstance(error, Exception):
                log.warning(
                    "a call of %s raised after each of its jobs was settled: %r",
                    self.spec.name, error, exc_info=error if log.isEnabledFor(10) else None,
                )  # fmt: skip

    def _ended(self, running: asyncio.Task[None]) -> None:
        if running.cancelled():  # before its first step
            self._error = asyncio.CancelledError()
        for member in list(self._members):
            self._release(member)

    async def _on_thread(self, batch: Batch[Any, Any]) -> None:
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, call_on_thread, lambda: self.spec.function(batch)
        )
        stopped = False
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:  # the thread holds slot and leases until it returns
                stopped = True
        running.result()
        if stopped:
            raise asyncio.CancelledError


def call_on_thread(call: Callable[[], Any]) -> Any:
    """Call on a thread; convert exceptions that would break the future or end the event loop."""
    try:
        return call()
    except StopIteration as error:  # a future cannot hold it and would never be done
        raise RuntimeError("the task raised StopIteration") from error
    except (KeyboardInterrupt, GeneratorExit) as error:  # these would end the worker's loop
        raise RuntimeError(f"the task raised {type(error).__name__}") from error


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
        self._open: dict[tuple[str, str], BatchCall] = {}  # may still grow
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
            if wait := self._wait(spec):
                call.timer = asyncio.get_running_loop().call_later(wait, self._mark_ready, call)
        call.add(attempt)
        if not call.missing:
            self._close(call)
            self._mark_ready(call)
        return True

    def _wait(self, spec: BatchSpec) -> float:
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
        for call in list(self._of(queue)):
            if not self._wait(call.spec) and (call.claim_made or not more):
                self._mark_ready(call)
            call.claim_made = True

    def stop_filling(self, queue: str) -> None:
        """Claim no more jobs for open batches: the queue returns jobs of other tasks."""
        for call in self._of(queue):
            call.crowded_out = True

    def wanted(self, queue: str) -> int:
        """How many jobs open batches lack, beyond those that the slots could run."""
        return sum(call.missing for call in self._of(queue) if not (call.ready or call.crowded_out))

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

    def _of(self, queue: str) -> Iterator[BatchCall]:
        return (call for (call_queue, _), call in self._open.items() if call_queue == queue)

    def _close(self, call: BatchCall) -> None:
        key = (call.attempts[0].job.queue, call.spec.name)
        if self._open.get(key) is call:
            del self._open[key]
