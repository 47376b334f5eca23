"""An app's twin: the same tasks on a memory store whose clock obeys, while a test lasts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from windlass.app import Windlass
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.errors import ConfigurationError
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL, State
from windlass.job import Job, explain
from windlass.schedule_records import Timetable
from windlass.stores.memory import MemoryStore
from windlass.task import Task
from windlass.testing.clock import VirtualClock
from windlass.testing.drain import Drain, Drainer
from windlass.testing.expected_job import Expected, Seen, complain
from windlass.testing.store_spy import Bench, BenchStore, Doom, at_once
from windlass.worker.loops.ticker import Ticker

P = ParamSpec("P")
R = TypeVar("R")
_OWN: Any = object()  # the app's own lifespan


class Twin:
    """What a test holds: the jobs that were enqueued, the clock, and ways to run them off."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock
        self._bench = Bench()
        self._memory = MemoryStore(clock=clock)
        self.store = BenchStore(self._memory, self._bench)
        self._drainer = Drainer(app, self._memory, self._bench, clock)

    # -- running

    async def adrain(self, *, until_empty: bool = False, concurrency: int = 1) -> Counter[State]:
        """Run all that can run now, one job of a queue at a time (or `concurrency`).

        With `until_empty` the clock is moved to whatever is due next until nothing is left but
        what is held or paused. Answers what became of the jobs that had not ended before, by state.
        """
        before = {row.id for row in self._drainer.rows(*FINAL)}
        await self._drainer.run(Drain(through_time=until_empty, concurrency=concurrency))
        return Counter(row.state for row in self._drainer.rows() if row.id not in before)

    def drain(self, *, until_empty: bool = False, concurrency: int = 1) -> Counter[State]:
        """The same, for a test without an event loop."""
        return self.app.sync.call(self.adrain(until_empty=until_empty, concurrency=concurrency))

    async def atick(self) -> list[Job[Any]]:
        """Enqueue what the schedules say, up to the clock's time; answers the new jobs.

        Schedules of the app's code begin when the block does.
        """
        before = {row.id for row in self._drainer.rows()}
        kit = self.app.kit
        ticker = Ticker(self.store, declared=kit.declared, prepare=kit.middleware.enqueue)
        await ticker.declare()
        while await ticker.once() == 0:
            pass
        return [Job(self.app, row) for row in self._drainer.rows() if row.id not in before]

    def tick(self) -> list[Job[Any]]:
        """The same, for a test without an event loop."""
        return self.app.sync.call(self.atick())

    @contextmanager
    def inline(self, *, raises: bool = False) -> Iterator[Twin]:
        """In the block, whoever enqueues a job gets it back when it has ended, retries and all.

        With `raises`, the enqueue of a job that did not succeed raises its JobFailedError.
        """
        bench = self._bench
        outer, bench.finish = bench.finish, partial(self._finish, raises=raises)
        try:
            yield self
        finally:
            bench.finish = outer

    async def _finish(self, answers: list[Enqueued], *, raises: bool) -> list[Enqueued]:
        ids = [answer.row.id for answer in answers if answer.accepted and answer.row is not None]
        await self._drainer.run(Drain(through_time=True, wanted=frozenset(ids)))
        return [self._ended(answer, raises=raises) for answer in answers]

    def _ended(self, answer: Enqueued, *, raises: bool) -> Enqueued:
        if not answer.accepted or answer.row is None:
            return answer
        [row] = at_once(self._memory.get([answer.row.id]))
        assert row is not None
        if raises and row.final and row.state is not State.SUCCEEDED:
            raise explain(row, self.app.codec)
        return Enqueued(answer.status, answer.new, existing=row)

    @contextmanager
    def crash_at(self, point: str, *, nth: int = 1) -> Iterator[Twin]:
        """Kill the worker that first comes to the point, as if by `kill -9`: its leases stay.

        A point is a write: `before-` it nothing of it is stored; `after-` it all is, but the worker
        never hears so. Writes are `claim`, `record` (what a task says), `step:NAME`, `enqueue` (by
        a task), `settle`. The drain ends there; with `until_empty`, or inline, another worker goes
        on. Raises AssertionError if no worker came there in the block.
        """
        bench = self._bench
        outer, bench.doom = bench.doom, Doom(point, nth)
        doom = bench.doom
        try:
            yield self
        finally:
            bench.doom = outer
        if doom.left > 0:
            passed = ", ".join(doom.passed) or "none: was anything run off?"
            often = f" {nth} times" if nth > 1 else ""
            raise AssertionError(f"no worker came to {point!r}{often}; the points were: {passed}")

    # -- looking

    @overload
    def enqueued(self) -> list[Job[Any]]: ...
    @overload
    def enqueued(self, task: Task[P, R]) -> list[Job[R]]: ...
    def enqueued(self, task: Task[Any, Any] | None = None) -> list[Job[Any]]:
        """The jobs that were enqueued, oldest first; of one task, if it is named."""
        return [
            Job(self.app, row)
            for row in self._drainer.rows()
            if task is None or row.task in task.spec.names
        ]

    def arguments(self, job: Job[Any]) -> dict[str, Any]:
        """What the job's task will be called with, defaults included."""
        return self._seen(job.row).arguments

    def assert_enqueued(
        self, task: Task[P, R], /, *, count: int | None = None, **expected: Any
    ) -> list[Job[R]]:
        """That jobs of the task were enqueued, at least one or just `count`; answers them.

        `expected` narrows them by the task's arguments and by options (`queue`, `delay`, `tags`,
        …); a name that is both is the argument.
        """
        wanted = Expected.of(task.spec, expected)
        found = [job for job in self.enqueued(task) if wanted.met_by(self._seen(job.row))]
        if (not found) if count is None else len(found) != count:
            self._complain(wanted, len(found), count)
        return found

    def assert_not_enqueued(self, task: Task[Any, Any], /, **expected: Any) -> None:
        self.assert_enqueued(task, count=0, **expected)

    def _seen(self, row: JobRow) -> Seen:
        return Seen.of(row, self._bench.requests.get(row.id), self.app)

    def _complain(self, wanted: Expected, found: int, count: int | None) -> None:
        there = [self._seen(row) for row in self._drainer.rows()]
        raise AssertionError(complain(wanted, found, count, there))


@contextmanager
def twin(app: Windlass, *, clock: VirtualClock | None = None, state: Any = _OWN) -> Iterator[Twin]:
    """The app on a memory store for the block: all that enqueues to it does so there.

    Its tasks, groups, codec, middleware, stages and lifespan are its own; with `state`, workers run
    no lifespan, and this is `ctx.state`. Workspaces are in a directory that goes with the block.
    """
    if not isinstance(app, Windlass):
        raise ConfigurationError(f"{app!r:.80} is no Windlass app, so it has no twin")
    made = Twin(app, clock or VirtualClock())
    with tempfile.TemporaryDirectory(prefix="windlass-twin-", ignore_cleanup_errors=True) as data:
        lifespan = None if state is _OWN else _yielding(state)
        with app.stand_in(made.store, Path(data), lifespan):
            at_once(Timetable(made.store).declare(app.kit.declared()))
            yield made


def _yielding(state: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[Any]:
        yield state

    return lifespan
