"""One call of a batch task, which runs several jobs in one call.

Waits for: each of its attempts to join, or to end without joining. Then it calls the task once.
Guarantees: each job stays its own attempt, with its own context, middleware, timeout, lease and
outcome, so the end of one does not affect the others. The call is cancelled when all its unsettled
jobs have a stop request. The last job to be settled waits for the call's end, so that slot and
lease are held while the call runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from types import TracebackType
from typing import Any

from windlass.core.job.lease import Lease
from windlass.worker.batch.batch import Batch, Item
from windlass.worker.batch.batch_spec import BatchSpec
from windlass.worker.context import Context
from windlass.worker.execution.thread_call import call_on_thread
from windlass.worker.running_attempts import RunningAttempt

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
        self.filling_stopped = False  # set when claims for it return jobs of other tasks
        self.claim_made = False  # one more claim was made to fill it
        self.timer: asyncio.TimerHandle | None = None
        self._expected = set(leases)  # attempts that have neither joined nor ended
        self._unended = len(self._expected)
        self._members: dict[_Member, None] = {}  # in order, until each is released
        self._active = 0  # members without a stop request
        self._running: asyncio.Task[None] | None = None
        self._cancelled = False  # all remaining members have a stop request
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
            # If the worker's loop is closed, only the thread still runs.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settled, member)

        member = _Member(Item(args, context, on_settled), loop.create_future())
        self._members[member] = None
        self._active += 1
        self._threads = threads
        self._start_if_complete(context.job.lease)
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
        """Record the end of an attempt, joined or not; return whether it was the last one."""
        self._start_if_complete(attempt.lease)
        self._unended -= 1
        return self._unended == 0

    def _start_if_complete(self, lease: Lease) -> None:
        """Note that an attempt has joined or ended; start the call after the last of them."""
        self._expected.discard(lease)
        if not self._expected and self._members and self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._on_call_done)

    async def _leave(self, member: _Member) -> None:
        """Stop a member: wait until the task has settled it, or the call has ended."""
        member.item.ctx.request_stop()
        if self._running is None:  # the call has not started: it runs without this job
            self._release(member)
            return
        if member in self._members:
            member.stop_requested = True
            self._active -= 1
            self._cancel_if_inactive()
        while not member.released.done():
            try:
                await asyncio.wait({member.released})
            except asyncio.CancelledError:  # a second stop: the task may have swallowed the first
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

    def _on_call_done(self, running: asyncio.Task[None]) -> None:
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
