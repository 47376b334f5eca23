"""Gathers jobs of batch tasks, and calls their task once for all of them.

Waits for: company, until a batch is full or its first job has waited for the task's `wait`; with no
`wait`, until no more is there to be claimed. What is gathered takes no slot; one call takes one.
Guarantees: each job stays an attempt of its own, with its own context, middleware, timeout, lease
and outcome: what ends one of them leaves the others alone. The call is cancelled when all of its
jobs that are not settled were told to stop. The last of them to be settled waits for its end, so
that a slot and a lease are held for as long as it runs. A job that was running when a worker died
is never gathered. Stops: what is gathered is given back at once. A crash leaves leases to run out.
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
from windlass.worker.attempt import Attempt
from windlass.worker.batch.task import Batch, BatchSpec, Item
from windlass.worker.context import Context

log = logging.getLogger("windlass.worker")


class _Member:
    """A job that has joined a call; `over` is done when its attempt may go on to its end."""

    __slots__ = ("item", "over", "told")

    def __init__(self, item: Item[Any, Any], over: asyncio.Future[None]) -> None:
        self.item = item
        self.over = over
        self.told = False  # to stop


class Call:
    """One call of a batch task. Each of its attempts joins, or is over without having joined."""

    def __init__(self, spec: BatchSpec, leases: Iterable[Lease] = ()) -> None:
        self.spec = spec
        self.attempts: list[Attempt] = []  # as gathered; the first stands for all in its lane
        self.ripe = False  # it waits for company no more
        self.hopeless = False  # what is claimed for company is of other tasks
        self.looked = False  # a claim was made for its company
        self.timer: asyncio.TimerHandle | None = None
        self._coming = set(leases)
        self._left = len(self._coming)
        self._members: dict[_Member, None] = {}  # in order, until each may go on to its end
        self._wanted = 0  # how many of these were not told to stop
        self._running: asyncio.Task[None] | None = None
        self._unwanted = False  # all that it was still for were told to stop
        self._error: BaseException | None = None
        self._trace: TracebackType | None = None

    @property
    def missing(self) -> int:
        return self.spec.size - len(self.attempts)

    def add(self, attempt: Attempt) -> None:
        attempt.call = self
        self.attempts.append(attempt)
        self._coming.add(attempt.lease)
        self._left += 1

    # -- from the attempts

    async def join(
        self, threads: Executor, context: Context, args: Any, limit: asyncio.Timeout
    ) -> Any:
        """This job's own result; raises what is its own outcome otherwise."""
        loop = asyncio.get_running_loop()

        def tell(_: Item[Any, Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the worker is gone, and left a thread behind
                loop.call_soon_threadsafe(self._settled, member)

        member = _Member(Item(args, context, tell), loop.create_future())
        self._members[member] = None
        self._wanted += 1
        self._threads = threads
        self._came(context.job.lease)
        try:
            await asyncio.wait({member.over})
        except asyncio.CancelledError:
            if limit.expired() and not self.spec.is_async:
                timeout = context.job.policy.timeout
                context.warn(
                    f"still running after its timeout of {timeout} s; a thread must return"
                )
            await self._leave(member)
            if not member.item.settled:  # what was done of it may be half of the work
                raise
        return self._end_of(member.item)

    def over(self, attempt: Attempt) -> bool:
        """This attempt has ended, joined or not; answers whether it was the last."""
        self._came(attempt.lease)
        self._left -= 1
        return self._left == 0

    def _came(self, lease: Lease) -> None:
        self._coming.discard(lease)
        if not self._coming and self._members and self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._ended)

    async def _leave(self, member: _Member) -> None:
        """It was told to stop: wait until the task has done with it, or the call is over."""
        member.item.ctx.ask_to_stop()
        if self._running is None:  # those that are still to come go without it
            self._let_go(member)
            return
        if member in self._members:
            member.told = True
            self._wanted -= 1
            self._cancel_if_unwanted()
        while not member.over.done():
            try:
                await asyncio.wait({member.over})
            except asyncio.CancelledError:  # told again: the task may have swallowed the first
                self._cancel()

    def _settled(self, member: _Member) -> None:
        if len(self._members) > 1 and member in self._members:
            self._let_go(member)
            self._cancel_if_unwanted()

    def _let_go(self, member: _Member) -> None:
        del self._members[member]
        self._wanted -= not member.told
        member.over.set_result(None)

    def _cancel_if_unwanted(self) -> None:
        if not self._unwanted and not self._wanted:
            self._unwanted = True
            self._cancel()

    def _cancel(self) -> None:
        if self._unwanted and self._running is not None:
            self._running.cancel()

    def _end_of(self, item: Item[Any, Any]) -> Any:
        if item.settled:
            return item.outcome()
        if self._error is not None:
            raise self._error.with_traceback(self._trace)
        return None

    # -- the call itself

    async def _run(self) -> None:
        batch = Batch(member.item for member in self._members)
        try:
            if self.spec.is_async:
                await self.spec.function(batch)
            else:
                await self._on_thread(batch)
        except BaseException as error:  # the outcome of each that is left
            self._error, self._trace = error, error.__traceback__
            if all(item.settled for item in batch) and isinstance(error, Exception):
                log.warning(
                    "a call of %s raised after each of its jobs was settled: %r",
                    self.spec.name, error, exc_info=error if log.isEnabledFor(10) else None,
                )  # fmt: skip

    def _ended(self, running: asyncio.Task[None]) -> None:
        if running.cancelled():  # before its first step
            self._error = asyncio.CancelledError()
        for member in list(self._members):
            self._let_go(member)

    async def _on_thread(self, batch: Batch[Any, Any]) -> None:
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, whole, lambda: self.spec.function(batch)
        )
        stopped = False
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:  # it holds the slot and the leases until it returns
                stopped = True
        running.result()
        if stopped:
            raise asyncio.CancelledError


def whole(call: Callable[[], Any]) -> Any:
    """For a thread: what a future cannot carry, or the loop would end of, becomes an error."""
    try:
        return call()
    except StopIteration as error:  # a future cannot carry it, and would never be done
        raise RuntimeError("the task raised StopIteration") from error
    except (KeyboardInterrupt, GeneratorExit) as error:  # on the loop, these would end the worker
        raise RuntimeError(f"the task raised {type(error).__name__}") from error


class Gatherer:
    """`ripe` is told of a call that is to begin as soon as there is a slot.

    Without `patient`, nothing waits for company: what is there is taken.
    """

    def __init__(
        self, tasks: Registry, ripe: Callable[[Call], None], *, patient: bool = True
    ) -> None:
        self._tasks = tasks
        self._ripe = ripe
        self._patient = patient
        self._open: dict[tuple[str, str], Call] = {}  # those that may still grow
        self.needed = any(isinstance(spec, BatchSpec) for spec in tasks)

    def add(self, attempt: Attempt) -> bool:
        """Whether it is gathered here; else it is to run by itself."""
        job = attempt.job
        spec: TaskSpec | None = self._tasks.get(job.task)
        if not isinstance(spec, BatchSpec) or job.crash_count:
            return False
        key = (job.queue, spec.name)
        call = self._open.get(key)
        if call is None:
            call = self._open[key] = Call(spec)
            if wait := self._wait(spec):
                call.timer = asyncio.get_running_loop().call_later(wait, self._ripen, call)
        call.add(attempt)
        if not call.missing:
            self._close(call)
            self._ripen(call)
        return True

    def _wait(self, spec: BatchSpec) -> float:
        return spec.wait if self._patient else 0.0

    def _ripen(self, call: Call) -> None:
        if call.timer is not None:
            call.timer.cancel()
        if not call.ripe:
            call.ripe = True
            self._ripe(call)

    def looked(self, queue: str, *, more: bool) -> None:
        """A claim from this queue was answered, and there may be more, or not.

        What has no time to wait gets one more claim to find company, if there may be some.
        """
        for call in list(self._of(queue)):
            if not self._wait(call.spec) and (call.looked or not more):
                self._ripen(call)
            call.looked = True

    def despair(self, queue: str) -> None:
        """What is claimed from this queue is of other tasks."""
        for call in self._of(queue):
            call.hopeless = True

    def company(self, queue: str) -> int:
        """How many jobs would be welcome beyond those that the slots could run."""
        return sum(call.missing for call in self._of(queue) if not (call.ripe or call.hopeless))

    def begun(self, call: Call) -> None:
        self._close(call)

    def give_up(self) -> list[Attempt]:
        """All that are gathered and wait for company."""
        calls = [call for call in self._open.values() if not call.ripe]
        for call in calls:
            if call.timer is not None:
                call.timer.cancel()
        self._open.clear()
        return [attempt for call in calls for attempt in call.attempts]

    def _of(self, queue: str) -> Iterator[Call]:
        return (call for (where, _), call in self._open.items() if where == queue)

    def _close(self, call: Call) -> None:
        key = (call.attempts[0].job.queue, call.spec.name)
        if self._open.get(key) is call:
            del self._open[key]
