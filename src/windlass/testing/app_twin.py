"""Twin of an app for tests: the same tasks on a memory store with a virtual clock."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from windlass.app import Windlass
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.errors import ConfigurationError
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL, State
from windlass.job import Job, job_failed_error
from windlass.records.schedule_records import ScheduleRecords
from windlass.stores.memory import MemoryStore
from windlass.task import Task
from windlass.testing.clock import VirtualClock
from windlass.testing.drain import Drainer, DrainOptions
from windlass.testing.expected_job import ExpectedJob, ObservedJob, mismatch_message
from windlass.testing.spy_store import CrashTrigger, SpyStore, TwinState, run_immediate
from windlass.worker.loops.ticker import Ticker

P = ParamSpec("P")
R = TypeVar("R")
_OWN: Any = object()  # the app's own lifespan


class Twin:
    """Gives a test the enqueued jobs, the virtual clock, and ways to run the jobs."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock
        self._state = TwinState()
        self._memory = MemoryStore(clock=clock)
        self.store = SpyStore(self._memory, self._state)
        self._drainer = Drainer(app, self._memory, self._state, clock)

    # -- running

    async def adrain(self, *, until_empty: bool = False, concurrency: int = 1) -> Counter[State]:
        """Run all jobs that can run now, one (or `concurrency`) at a time per queue.

        With `until_empty`, move the clock to the next due job until only held or paused jobs are
        left. Return the number of jobs by state, without those that had ended before.
        """
        before = {row.id for row in self._drainer.rows(*FINAL)}
        await self._drainer.run(DrainOptions(move_clock=until_empty, concurrency=concurrency))
        return Counter(row.state for row in self._drainer.rows() if row.id not in before)

    def drain(self, *, until_empty: bool = False, concurrency: int = 1) -> Counter[State]:
        """Like `adrain`, for a test without an event loop."""
        return self.app.sync.call(self.adrain(until_empty=until_empty, concurrency=concurrency))

    async def atick(self) -> list[Job[Any]]:
        """Enqueue the jobs of all schedules up to the clock's time; return the new jobs.

        Schedules in the app's code start at the start of the twin's block.
        """
        before = {row.id for row in self._drainer.rows()}
        parts = self.app.parts
        ticker = Ticker(
            self.store,
            schedules=parts.declared_schedules,
            prepare=parts.middleware.enqueue,
        )
        await ticker.declare()
        while await ticker.once() == 0:
            pass
        return [Job(self.app, row) for row in self._drainer.rows() if row.id not in before]

    def tick(self) -> list[Job[Any]]:
        """Like `atick`, for a test without an event loop."""
        return self.app.sync.call(self.atick())

    @contextmanager
    def inline(self, *, raises: bool = False) -> Iterator[Twin]:
        """In the block, every enqueue runs its job to the end, retries included, before it returns.

        With `raises`, the enqueue of a job that did not succeed raises its JobFailedError.
        """
        state = self._state
        outer, state.finish = state.finish, partial(self._finish, raises=raises)
        try:
            yield self
        finally:
            state.finish = outer

    async def _finish(self, results: list[EnqueueResult], *, raises: bool) -> list[EnqueueResult]:
        ids = [result.row.id for result in results if result.accepted and result.row is not None]
        await self._drainer.run(DrainOptions(move_clock=True, must_end=frozenset(ids)))
        return [self._ended(result, raises=raises) for result in results]

    def _ended(self, result: EnqueueResult, *, raises: bool) -> EnqueueResult:
        if not result.accepted or result.row is None:
            return result
        [row] = run_immediate(self._memory.get([result.row.id]))
        assert row is not None
        if raises and row.final and row.state is not State.SUCCEEDED:
            raise job_failed_error(row, self.app.codec)
        return EnqueueResult(result.status, result.new, existing=row)

    @contextmanager
    def crash_at(self, point: str, *, nth: int = 1) -> Iterator[Twin]:
        """Crash the worker that first reaches the point, as `kill -9` does: its leases stay.

        A point is a write. At `before-` nothing of it is stored. At `after-` all of it is stored,
        but the worker never receives the response. Writes are `claim`, `record` (events of a
        task), `step:NAME`, `enqueue` (by a task) and `settle`. The drain ends there; with
        `until_empty` or inline, another worker continues. Raise AssertionError at the end of the
        block if no worker reached the point.
        """
        state = self._state
        outer, state.trigger = state.trigger, CrashTrigger(point, nth)
        trigger = state.trigger
        try:
            yield self
        finally:
            state.trigger = outer
        if trigger.remaining > 0:
            reached = ", ".join(trigger.reached) or "none (did a drain run?)"
            times = f" {nth} times" if nth > 1 else ""
            raise AssertionError(f"no worker reached {point!r}{times}; points reached: {reached}")

    # -- inspecting

    @overload
    def enqueued(self) -> list[Job[Any]]: ...
    @overload
    def enqueued(self, task: Task[P, R]) -> list[Job[R]]: ...
    def enqueued(self, task: Task[Any, Any] | None = None) -> list[Job[Any]]:
        """Return all enqueued jobs, or those of `task`, oldest first."""
        return [
            Job(self.app, row)
            for row in self._drainer.rows()
            if task is None or row.task in task.spec.names
        ]

    def arguments(self, job: Job[Any]) -> dict[str, Any]:
        """Return the arguments that the job's task is called with, defaults included."""
        return self._observe(job.row).arguments

    def assert_enqueued(
        self, task: Task[P, R], /, *, count: int | None = None, **expected: Any
    ) -> list[Job[R]]:
        """Assert that at least one job, or exactly `count` jobs, of the task were enqueued.

        `expected` filters by the task's arguments and by options (`queue`, `delay`, `tags`, …). A
        name that is both means the argument. Return the matching jobs.
        """
        wanted = ExpectedJob.of(task.spec, expected)
        found = [job for job in self.enqueued(task) if wanted.matches(self._observe(job.row))]
        if (not found) if count is None else len(found) != count:
            self._raise_mismatch(wanted, len(found), count)
        return found

    def assert_not_enqueued(self, task: Task[Any, Any], /, **expected: Any) -> None:
        self.assert_enqueued(task, count=0, **expected)

    def _observe(self, row: JobRow) -> ObservedJob:
        return ObservedJob.of(row, self._state.requests.get(row.id), self.app)

    def _raise_mismatch(self, expected: ExpectedJob, found: int, count: int | None) -> None:
        observed = [self._observe(row) for row in self._drainer.rows()]
        raise AssertionError(mismatch_message(expected, found, count, observed))


@contextmanager
def twin(app: Windlass, *, clock: VirtualClock | None = None, state: Any = _OWN) -> Iterator[Twin]:
    """Run the app on a memory store inside the block; all its enqueues go there.

    Tasks, groups, codec, middleware, stages and lifespan are those of the app. With `state`,
    workers run no lifespan and `ctx.state` is `state`. Workspaces are in a directory that is
    deleted with the block.
    """
    if not isinstance(app, Windlass):
        raise ConfigurationError(f"twin() needs a Windlass app, not {app!r:.80}")
    new_twin = Twin(app, clock or VirtualClock())
    with tempfile.TemporaryDirectory(prefix="windlass-twin-", ignore_cleanup_errors=True) as data:
        lifespan = None if state is _OWN else _lifespan_with(state)
        with app.replace_store(new_twin.store, Path(data), lifespan):
            run_immediate(ScheduleRecords(new_twin.store).declare(app.parts.declared_schedules()))
            yield new_twin


def _lifespan_with(state: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Any]:
        yield state

    return lifespan
