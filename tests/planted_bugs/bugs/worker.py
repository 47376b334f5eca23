"""Mistakes in the loops of a worker: keeping leases, claiming, sweeping, stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.decisions import outcome
from windlass.core.decisions.outcome import Failed, Outcome, Released
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim, Extended, Lease
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore
from windlass.worker.attempt import Attempt, Why
from windlass.worker.executor import describe
from windlass.worker.loops import fetcher, sweeper
from windlass.worker.loops.fetcher import Fetcher
from windlass.worker.loops.keeper import Join, Keeper
from windlass.worker.loops.settler import Settler
from windlass.worker.loops.sweeper import Sweeper
from windlass.worker.worker import Worker

T = TypeVar("T")
KEEPER = "tests/worker/loops/test_keeper.py::"
FETCHER = "tests/worker/loops/test_fetcher.py::"
WORKER = "tests/worker/test_worker.py::"
SETTLER = "tests/worker/loops/test_settler.py::"
STOPPING = "tests/worker/test_shutdown.py::"
EXECUTOR = "tests/worker/test_executor.py::"


# -- leases


@caught_by(KEEPER + "test_a_blocked_event_loop_loses_no_lease")
def the_heartbeat_runs_on_the_event_loop() -> None:
    """Leases are extended by the event loop that also runs the tasks."""
    begin = Keeper.__init__

    def beside_the_tasks(_: str, work: Coroutine[Any, Any, None]) -> Join:
        task = asyncio.ensure_future(work)

        async def join(timeout: float | None) -> None:
            await asyncio.wait_for(task, timeout)

        return join

    def planted(self: Keeper, store: Store, **given: Any) -> None:
        begin(self, store, **{**given, "apart": beside_the_tasks})

    swap(Keeper, "__init__", planted)


class _Disheartened(WrappedStore):
    """After an extension that failed, the others are not made at all."""

    failed = False

    def wrap(self, store: Store) -> Store:
        return _Disheartened(store)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        if self.failed:
            return [Extended(lease_until=2**60) for _ in leases]
        try:
            return await super().extend(leases, seconds)
        except Exception:
            self.failed = True
            raise


@caught_by(KEEPER + "test_a_store_that_fails_is_asked_again_before_the_lease_is_lost[error0]")
def the_heartbeat_dies_of_one_error() -> None:
    """One extension that fails is the last: the heartbeat is dead, the task runs on."""
    begin = Keeper.__init__

    def planted(self: Keeper, store: Store, **callbacks: Any) -> None:
        begin(self, _Disheartened(store), **callbacks)

    swap(Keeper, "__init__", planted)


@caught_by(WORKER + "test_a_lost_lease_stops_the_task_and_drops_its_result", waits=True)
def a_lost_lease_does_not_stop_the_task() -> None:
    """A worker that is told that its lease is gone lets the task run on."""
    end = Attempt.end

    def planted(self: Attempt, why: Why) -> None:
        if why is Why.LOST:
            self.why = why
        else:
            end(self, why)

    swap(Attempt, "end", planted)


@caught_by(WORKER + "test_a_thread_that_lost_its_job_does_not_disturb_the_next_attempt")
def a_ghost_settles_with_the_lease_of_another() -> None:
    """A worker settles by the job's id: it looks up who holds the lease, and speaks for him."""
    write = Settler._write

    async def planted(self: Settler, batch: Sequence[Attempt]) -> None:
        for attempt in batch:
            [row] = await self._store.get([attempt.job.id])
            assert row is not None
            assert attempt.wish is not None
            attempt.wish = replace(attempt.wish, fence=row.fence, token=row.token)
        await write(self, batch)

    swap(Settler, "_write", planted)
    swap(Attempt, "lost", property(lambda _: False))
    swap(Settler, "_still_ours", lambda _, batch: batch)


# -- claiming


@caught_by(FETCHER + "test_a_claim_whose_answer_was_lost_is_repeated_with_its_token", waits=True)
def a_claim_whose_answer_was_lost_is_made_anew() -> None:
    """After an error a claim is made with a new token: what the first one took is stranded."""
    swap(fetcher, "Claim", lambda **fields: Claim(**{**fields, "token": uuid7()}))


@caught_by(FETCHER + "test_a_stop_gives_back_what_was_claimed_and_never_begun")
def a_stop_forgets_what_was_claimed_ahead() -> None:
    """What a worker has fetched and not begun when it stops is left to its lease."""
    swap(Worker, "_give_back", lambda self, attempt: self._done([attempt]))


@caught_by(
    FETCHER + "test_a_job_that_was_running_when_a_worker_died_is_never_held_in_waiting", waits=True
)
def suspects_wait_beside_the_killer() -> None:
    """Jobs of a dead worker are claimed ahead again: if this one dies too, all of them pay."""
    take = Fetcher._take

    def planted(self: Fetcher, *claimed: Any) -> list[Attempt]:
        attempts = take(self, *claimed)
        for lane in self._lanes.values():
            lane.careful = False
        return attempts

    swap(Fetcher, "_take", planted)


# -- sweeping


@caught_by("tests/worker/loops/test_sweeper.py::test_a_store_that_fails_is_swept_again", waits=True)
def the_sweeper_dies_of_one_exception() -> None:
    """Maintenance ends with its first error, and nobody notices until nothing is rescued."""

    async def planted(self: Sweeper) -> None:
        while True:
            await self.once()
            await asyncio.sleep(self._interval)

    swap(Sweeper, "run", planted)


@caught_by("tests/stores/test_sqlite.py::TestRetries::test_a_job_that_crashes_up_to_its_cap_fails")
def a_rescue_ignores_the_crash_cap() -> None:
    """A lease that ran out is always given to the next worker: a job that kills them never ends."""
    rescue = outcome.rescue

    def planted(job: JobRow, *, random: Any) -> Any:
        return rescue(replace(job, crash_count=0), random=random)

    swap(outcome, "rescue", planted)


@caught_by("tests/testing/test_crash_at.py::test_what_kills_every_worker_ends_failed")
def a_crash_is_tried_again_for_ever() -> None:
    """A job is queued again as often as its process dies: a poison pill."""
    crash = outcome._crash

    def planted(job: JobRow, random: Any, body: bytes | None = None) -> Any:
        return crash(replace(job, crash_count=0), random, body)

    swap(outcome, "_crash", planted)


@caught_by("tests/worker/loops/test_sweeper.py::test_more_than_a_batch_is_moved_in_one_sweep")
def a_sweep_moves_one_batch_and_sleeps() -> None:
    """However many leases ran out, each sweep takes back one batch: a large outage takes hours."""

    async def planted(self: Sweeper) -> int:
        moved = 0
        for read in (self._store.due, self._store.expired):
            rows = await read(sweeper.BATCH)
            wishes = [outcome.sweep(row, random=lambda: 0.5) for row in rows]
            moved += sum(answer.applied for answer in await self._store.apply(wishes))
        return moved

    swap(Sweeper, "once", planted)


# -- stopping


@caught_by(WORKER + "test_after_the_grace_the_rest_is_released_uncounted")
def a_release_burns_an_attempt() -> None:
    """What a stopping worker gives back counts as a failure: a few deploys, and the job is dead."""
    ended = Worker._outcome

    def planted(self: Worker, attempt: Attempt, how: Outcome | None) -> Outcome:
        told = ended(self, attempt, how)
        if isinstance(told, Released):
            return Failed(failure=describe(asyncio.CancelledError(), self._codec), delay=0.0)
        return told

    swap(Worker, "_outcome", planted)


@caught_by(STOPPING + "test_a_task_that_will_not_end_is_left_to_its_lease", waits=True)
def a_stop_waits_for_ever() -> None:
    """A worker that is told to stop waits for its tasks without a bound."""

    async def planted(self: Worker) -> None:
        for attempt in list(self._attempts.values()):
            attempt.end(Why.RELEASE)
        await self._settled.wait()

    swap(Worker, "_release", planted)


@caught_by(EXECUTOR + "test_a_cancellation_from_within_is_an_error_and_no_cancel")
def a_cancellation_from_within_is_taken_for_a_stop() -> None:
    """A CancelledError that the task itself caused is read as the worker's own stop."""
    ended = Worker._outcome

    def planted(self: Worker, attempt: Attempt, how: Outcome | None) -> Outcome:
        return Released() if how is None and attempt.why is None else ended(self, attempt, how)

    swap(Worker, "_outcome", planted)
