"""Bugs in the loops of a worker: leases, claims, sweeps and shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.planted_bugs.bug import caught_by, swap

from windlass.core.decisions import maintenance, outcome
from windlass.core.decisions.outcome import Failed, Outcome, Released
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim, ExtendResult, Lease
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.wrapped_store import WrappedStore
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.execution.attempt_runner import AttemptRunner
from windlass.worker.loops import fetcher, sweeper
from windlass.worker.loops.keeper import Join, Keeper
from windlass.worker.loops.settler import Settler
from windlass.worker.loops.sweeper import Sweeper
from windlass.worker.running_attempts import RunningAttempt, StopReason
from windlass.worker.slots import WorkerSlots
from windlass.worker.worker import Worker

T = TypeVar("T")
KEEPER = "tests/worker/loops/test_keeper.py::"
FETCHER = "tests/worker/loops/test_fetcher.py::"
WORKER = "tests/worker/test_worker.py::"
SETTLER = "tests/worker/loops/test_settler.py::"
STOPPING = "tests/worker/test_shutdown.py::"
EXECUTOR = "tests/worker/test_task_executor.py::"


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
        begin(self, store, **{**given, "start_loop": beside_the_tasks})

    swap(Keeper, "__init__", planted)


class _StopsAfterError(WrappedStore):
    """After an extension that failed, the others are not made at all."""

    failed = False

    def wrap(self, store: Store) -> Store:
        return _StopsAfterError(store)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        if self.failed:
            return [ExtendResult(lease_until=2**60) for _ in leases]
        try:
            return await super().extend(leases, seconds)
        except Exception:
            self.failed = True
            raise


@caught_by(KEEPER + "test_a_failed_extension_is_retried_before_the_lease_is_lost[error0]")
def the_heartbeat_stops_after_one_error() -> None:
    """One failed extension ends the heartbeat while the task still runs."""
    begin = Keeper.__init__

    def planted(self: Keeper, store: Store, **callbacks: Any) -> None:
        begin(self, _StopsAfterError(store), **callbacks)

    swap(Keeper, "__init__", planted)


@caught_by(WORKER + "test_a_lost_lease_stops_the_task_and_drops_its_result", waits=True)
def a_lost_lease_does_not_stop_the_task() -> None:
    """A worker that lost its lease does not stop the task."""
    request_stop = RunningAttempt.request_stop

    def planted(self: RunningAttempt, reason: StopReason) -> None:
        if reason is StopReason.LOST:
            self.stop_reason = reason
        else:
            request_stop(self, reason)

    swap(RunningAttempt, "request_stop", planted)


@caught_by(WORKER + "test_a_thread_that_lost_its_lease_does_not_affect_the_next_attempt")
def a_stale_worker_settles_with_the_current_lease() -> None:
    """A worker settles by the job's id: it reads the current lease and uses it."""
    write = Settler._write

    async def planted(self: Settler, batch: Sequence[RunningAttempt]) -> None:
        for attempt in batch:
            [row] = await self._store.get([attempt.job.id])
            assert row is not None
            assert attempt.transition is not None
            attempt.transition = replace(attempt.transition, fence=row.fence, token=row.token)
        await write(self, batch)

    swap(Settler, "_write", planted)
    settle = Settler.settle

    def settle_lost(self: Settler, attempt: RunningAttempt, outcome_: Outcome) -> None:
        attempt.stop_reason = None
        settle(self, attempt, outcome_)

    swap(Settler, "settle", settle_lost)
    swap(Settler, "_drop_lost", lambda _, batch: batch)


# -- claiming


@caught_by(FETCHER + "test_a_claim_whose_response_was_lost_is_repeated_with_its_token", waits=True)
def a_lost_claim_is_repeated_with_a_new_token() -> None:
    """After an error a claim uses a new token: the jobs of the first claim are stranded."""
    swap(fetcher, "Claim", lambda **fields: Claim(**{**fields, "token": uuid7()}))


@caught_by(FETCHER + "test_a_stop_releases_claimed_jobs_that_never_started")
def a_stop_keeps_prefetched_jobs() -> None:
    """Prefetched jobs of a stopping worker are retried only after lease expiry."""
    swap(AttemptRunner, "release", lambda self, attempt: self._settler._attempts.forget([attempt]))


@caught_by(
    FETCHER + "test_a_job_that_was_running_when_a_worker_died_is_never_prefetched", waits=True
)
def suspects_are_prefetched_together() -> None:
    """Jobs of a dead worker are prefetched together: another crash counts for all of them."""
    add = WorkerSlots._add

    def planted(self: WorkerSlots, *claimed: Any) -> None:
        add(self, *claimed)
        for slots in self.queues.values():
            slots.has_crashed_jobs = False

    swap(WorkerSlots, "_add", planted)


# -- sweeping


@caught_by(
    "tests/worker/loops/test_sweeper.py::test_a_sweep_is_repeated_after_a_store_failure", waits=True
)
def the_sweeper_stops_after_one_error() -> None:
    """Maintenance ends with its first error, and no job is rescued any more."""

    async def planted(self: Sweeper) -> None:
        while True:
            await self.once()
            await asyncio.sleep(self._interval)

    swap(Sweeper, "run", planted)


@caught_by("tests/stores/test_sqlite.py::TestRetries::test_a_job_that_crashes_up_to_its_cap_fails")
def a_rescue_ignores_the_crash_cap() -> None:
    """An expired lease is always retried: a job that kills its workers never ends."""
    rescue = maintenance.rescue

    def planted(job: JobRow, *, random: Any) -> Any:
        return rescue(replace(job, crash_count=0), random=random)

    swap(maintenance, "rescue", planted)


@caught_by(
    "tests/testing/test_crash_at.py::test_a_job_that_kills_every_worker_fails_at_the_crash_cap"
)
def a_crash_is_retried_forever() -> None:
    """A job is queued again after every crash of its process: a poison pill."""
    crash = outcome.crash_failure

    def planted(job: JobRow, random: Any, body: bytes | None = None) -> Any:
        return crash(replace(job, crash_count=0), random, body)

    swap(outcome, "crash_failure", planted)


@caught_by("tests/worker/loops/test_sweeper.py::test_more_than_a_batch_is_moved_in_one_sweep")
def a_sweep_moves_one_batch_and_sleeps() -> None:
    """Each sweep rescues only one batch: after a large outage the rescue takes hours."""

    async def planted(self: Sweeper) -> int:
        rows = await self._store.due(sweeper.BATCH)
        transitions = [maintenance.sweep(row, random=lambda: 0.5) for row in rows]
        return sum(answer.applied for answer in await self._store.apply(transitions))

    swap(Sweeper, "once", planted)


# -- stopping


@caught_by(WORKER + "test_jobs_that_exceed_the_grace_period_are_released_uncounted")
def a_release_burns_an_attempt() -> None:
    """A release by a stopping worker counts as a failure: a few deploys, and the job fails."""
    ended = AttemptRunner._outcome_after_stop

    def planted(self: AttemptRunner, attempt: RunningAttempt, how: Outcome | None) -> Outcome:
        outcome_ = ended(self, attempt, how)
        if isinstance(outcome_, Released):
            return Failed(
                failure=failure_from_error(asyncio.CancelledError(), self._codec), delay=0.0
            )
        return outcome_

    swap(AttemptRunner, "_outcome_after_stop", planted)


@caught_by(STOPPING + "test_a_task_that_ignores_its_cancel_is_left_to_lease_expiry", waits=True)
def a_stop_waits_forever() -> None:
    """A stopping worker waits for its tasks without a timeout."""

    async def planted(self: Worker) -> None:
        for attempt in list(self._attempts):
            attempt.request_stop(StopReason.RELEASE)
        await self._attempts.idle.wait()

    swap(Worker, "_release_running", planted)


@caught_by(EXECUTOR + "test_a_cancellation_inside_the_task_is_an_error_and_no_cancel")
def a_task_cancellation_is_treated_as_a_stop() -> None:
    """A CancelledError that the task itself caused is treated as a stop of the worker."""
    ended = AttemptRunner._outcome_after_stop

    def planted(self: AttemptRunner, attempt: RunningAttempt, how: Outcome | None) -> Outcome:
        return (
            Released() if how is None and attempt.stop_reason is None else ended(self, attempt, how)
        )

    swap(AttemptRunner, "_outcome_after_stop", planted)
