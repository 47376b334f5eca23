"""A worker: claims jobs, runs them, and settles their outcomes.

Each loop has its own file; this module connects them. The fetcher claims jobs, an attempt runs as
an asyncio task, the settler stores its outcome, and the keeper holds its lease until then. `stop`
ends the claiming. Attempts that still run after the grace period are released, uncounted. Attempts
that do not stop even then are left to lease expiry. After a crash, leases expire and other workers
claim the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from windlass.core.codec import Codec
from windlass.core.decisions.outcome import Aborted, Failed, Outcome, Released
from windlass.core.errors import StoreError
from windlass.core.job.lease import DEFAULT_LEASE, Lease
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.worker_presence import Readiness, store_problem, unresponsive_problems
from windlass.process.cancellation import run_uncancelled
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.app_hooks import AppHooks
from windlass.worker.child.executor import ChildExecutor
from windlass.worker.config import WorkerConfig
from windlass.worker.context import Context
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.execution.task_executor import TaskExecutor
from windlass.worker.lifespan import lifespan_state
from windlass.worker.loops.cancel_watcher import CancelWatcher
from windlass.worker.loops.event_writer import EventWriter
from windlass.worker.loops.fetcher import Fetcher
from windlass.worker.loops.keeper import Keeper
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.loops.presence import Presence
from windlass.worker.loops.settler import Settler
from windlass.worker.loops.sweeper import Sweeper
from windlass.worker.loops.ticker import Ticker
from windlass.worker.loops.workspace_cleaner import WorkspaceCleaner
from windlass.worker.running_attempt import RunningAttempt, StopReason

log = logging.getLogger("windlass.worker")
MAX_LOGGED_IDS = 10  # job ids in one log line
CLEAN_EVERY = 5  # sweeps
READY_TIMEOUT = 5.0  # seconds
DECLARE_RETRY_DELAY = 0.5  # seconds


class Worker:
    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        config: WorkerConfig,
        hooks: AppHooks | None = None,
        *,
        keeper: Callable[..., Keeper] = Keeper,
    ) -> None:
        self.config = config
        self._make_keeper = keeper
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._hooks = hooks or AppHooks()
        self._cleaner = WorkspaceCleaner(store, self._hooks.workspaces)
        self._state: Any = None
        # By lease: a job can have two attempts here, a thread that lost its lease and the next one.
        self._attempts: dict[Lease, RunningAttempt] = {}
        self._all_settled = asyncio.Event()  # set while there are no attempts
        self._all_settled.set()
        self._busy = asyncio.Event()  # set while there are attempts
        self._grace_started = asyncio.Event()  # set when a stop has a time limit
        self._loop_error: BaseException | None = None
        self._fetcher = Fetcher(
            store,
            config,
            on_claimed=self._register,
            start=self._start,
            release=self._release_unstarted,
            busy=self._busy,
            tasks=tasks,
        )
        self._children = ChildExecutor(
            limit=sum(config.queues.values()),
            app=self._hooks.app,
            lifespan=self._hooks.lifespan is not None,
            # Shorter than the worker's own limit, so that killed jobs are requeued in time.
            grace=max(config.release_timeout / 2, config.release_timeout - 2),
        )
        self._settler = Settler(store, tasks, codec, self._cleaner, self._forget)
        self._presence = Presence(
            store,
            tasks,
            config,
            running=lambda: self.running,
            last_claim=lambda: self._fetcher.last_claim,
            free=lambda: self._fetcher.free,
            stopping=lambda: self._fetcher.stopping,
        )

    @property
    def settled(self) -> Mapping[State, int]:
        """How many attempts this worker has settled, by the resulting job state."""
        return self._settler.settled

    @property
    def running(self) -> int:
        """How many attempts this worker holds."""
        return len(self._attempts)

    async def ready(self, timeout: float = READY_TIMEOUT) -> Readiness:
        """Return the problems of this worker: store unavailable, shutting down, or unresponsive.

        A readiness probe (`/readyz`) calls this on the worker's own event loop.
        """
        try:
            async with asyncio.timeout(timeout):
                record = await self._presence.snapshot()
        except (StoreError, TimeoutError) as error:
            return Readiness((store_problem(error, timeout),))
        if record.stopping:
            return Readiness((f"worker {record.name} is shutting down and claims no more jobs",))
        return Readiness(unresponsive_problems([record]))

    def stop(self, *, unbounded: bool = False) -> None:
        """Stop claiming; end when running tasks have ended, or after the grace period.

        With `unbounded` there is no grace period, unless a later stop starts it.
        """
        if not unbounded:
            self._grace_started.set()
        self._fetcher.stop()

    async def run(self) -> None:
        try:
            with self._hooks.loop_context(asyncio.get_running_loop()):
                async with lifespan_state(self._hooks.lifespan) as self._state:
                    await self._work()
        finally:
            await self._store.close()

    async def _work(self) -> None:
        await self._declare_limits()
        loop = asyncio.get_running_loop()
        self._keeper = self._make_keeper(
            self._store.twin(),
            on_lost=lambda lease: loop.call_soon_threadsafe(self._lease_lost, lease),
            on_cancel=lambda lease: loop.call_soon_threadsafe(
                self._stop_attempt, lease, StopReason.CANCEL
            ),
        )
        self._keeper.start()
        threads = ThreadPoolExecutor(sum(self.config.queues.values()), "windlass-task")
        self._executor = TaskExecutor(
            self._tasks,
            self._codec,
            threads,
            self._store,
            hooks=self._hooks,
            children=self._children,
            isolate=self.config.isolate,
        )
        loops = [loop.create_task(work) for work in self._background_loops()]
        for task in loops:
            task.add_done_callback(self._loop_ended)
        try:
            await self._fetcher.run()
            await self._drain()
        finally:
            # Not interrupted by cancellation: no task may continue without its lease.
            await run_uncancelled(self._shut_down(loops, threads))
        if self._loop_error is not None:
            raise self._loop_error

    async def _declare_limits(self) -> None:
        """Store the limits of the app's code before this worker enqueues or claims jobs."""
        if self._hooks.declare_limits is None:
            return
        outages = OutageLog("Storing limits")
        while not self._fetcher.stopping:
            try:
                await self._hooks.declare_limits(self._store)
            except StoreError as error:
                outages.failed(error)
                await asyncio.sleep(DECLARE_RETRY_DELAY)
            else:
                outages.succeeded()
                outages.log_recovery()
                return

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """Stop the worker if a loop fails: it must not claim jobs that it cannot settle."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background loop failed; the worker stops", exc_info=error)
            self._loop_error = error
            self.stop()

    async def _shut_down(
        self, loops: list[asyncio.Task[None]], threads: ThreadPoolExecutor
    ) -> None:
        """Stop all parts; each has a time limit, so the whole shutdown has one."""
        timeout = self.config.release_timeout
        await self._release_running()
        await self._settler.finish(timeout)
        await self._children.aclose()
        self._fetcher.abandon_claim()
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        threads.shutdown(wait=False, cancel_futures=True)
        await self._keeper.stop(timeout)

    def _background_loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that run concurrently with the fetcher, on the same event loop."""
        config = self.config
        sweeper = Sweeper(self._store, config.sweep_interval, config.retention, self._cleaner)
        cancel_watcher = CancelWatcher(
            self._store,
            config.cancel_poll_interval,
            running=lambda: self._attempts,
            on_cancel=lambda lease: self._stop_attempt(lease, StopReason.CANCEL),
            busy=self._busy,
        )
        event_writer = EventWriter(
            self._attempts.values,
            on_lost=lambda attempt: self._lease_lost(attempt.lease),
            busy=self._busy,
        )
        settler_loop = self._settler.run(self._fetcher.no_backlog)
        cleaner_loop = self._cleaner.run(CLEAN_EVERY * config.sweep_interval)
        hooks = self._hooks
        ticker = Ticker(
            self._store, schedules=hooks.declared_schedules, prepare=hooks.middleware.enqueue
        )
        optional_loops = [ticker.run()] if config.schedules else []
        if config.maintenance:
            optional_loops.append(sweeper.run())
        loops = (cancel_watcher, event_writer, self._presence)
        return [settler_loop, cleaner_loop, *optional_loops, *(loop.run() for loop in loops)]

    # -- an attempt, from claim to settle

    def _register(self, jobs: list[JobRow], sent_at: float) -> list[RunningAttempt]:
        """Register claimed jobs and hold their leases; `sent_at` is loop time of the claim."""
        ago = asyncio.get_running_loop().time() - sent_at
        fixed_lease = self.config.lease
        attempts = [RunningAttempt(job, job.lease, sent_at + ago) for job in jobs]
        by_length: dict[float, dict[Lease, RunningAttempt]] = {}
        for attempt in attempts:
            length = fixed_lease or attempt.job.lease_seconds or DEFAULT_LEASE
            by_length.setdefault(length, {})[attempt.lease] = attempt
        for length, group in by_length.items():
            self._keeper.hold_all(group, length, ago)
            self._attempts |= group
        if attempts:
            self._all_settled.clear()
            self._busy.set()
        return attempts

    def _start(self, attempt: RunningAttempt) -> None:
        job = attempt.job
        spec = self._tasks.get(job.task)
        loop = asyncio.get_running_loop()
        attempt.context = Context(
            job,
            self._store,
            self._codec,
            loop,
            (spec.options.stages if spec else None) or self._hooks.stages,
            hooks=self._hooks,
            state=self._state,
            spec=spec,
        )
        if attempt.stop_reason is not None:  # stopped before it started
            self._finish(attempt, None)
            return
        attempt.task = loop.create_task(self._run(attempt, attempt.context))

    async def _run(self, attempt: RunningAttempt, context: Context) -> None:
        outcome: Outcome | None = None
        attempt.started = True
        try:
            if attempt.stop_reason is not None:
                return  # stopped after its task was created
            outcome = await self._executor.run(attempt.job, context, attempt.batch_call)
        except asyncio.CancelledError:
            pass  # stopped, or something that the task awaited was cancelled
        except BaseException as error:
            log.exception("job %s could not run", attempt.job.id)
            outcome = Failed(failure=failure_from_error(error, self._codec))
            if not isinstance(error, Exception):
                raise
        finally:
            self._finish(attempt, outcome)

    def _finish(self, attempt: RunningAttempt, result: Outcome | None) -> None:
        """Free the slot and queue the outcome. The lease is kept until the outcome is stored."""
        if attempt.lost:
            log.warning("job %s: lease expired; result discarded", attempt.job.id)
            self._forget([attempt])
        else:
            self._settler.settle(attempt, self._outcome(attempt, result))
        call = attempt.batch_call
        if call is None:
            self._fetcher.slot_freed(attempt.job.queue)
        elif call.end_attempt(attempt):
            self._fetcher.slot_freed(attempt.job.queue, len(call.attempts))

    def _outcome(self, attempt: RunningAttempt, result: Outcome | None) -> Outcome:
        if attempt.stop_reason is None and result is not None:
            return result
        released = attempt.stop_reason is StopReason.RELEASE
        if released and (result is None or isinstance(result, Failed)):
            return Released()  # an error caused by the stop is not the task's failure
        if result is not None:
            return result
        if attempt.stop_reason is StopReason.CANCEL:
            return Aborted(reason="canceled")
        # No stop was requested: something that the task awaited was cancelled.
        error = asyncio.CancelledError("the task was cancelled from within")
        step = attempt.context.current_step if attempt.context else None
        return Failed(failure=failure_from_error(error, self._codec, step=step))

    def _release_unstarted(self, attempt: RunningAttempt) -> None:
        """Requeue an attempt that was claimed and never started."""
        if attempt.lost:
            self._forget([attempt])
        else:
            aborted = attempt.stop_reason is StopReason.CANCEL
            self._settler.settle(attempt, Aborted(reason="canceled") if aborted else Released())

    def _forget(self, attempts: Sequence[RunningAttempt]) -> None:
        """Drop attempts that are settled or lost, with their leases."""
        leases = [attempt.lease for attempt in attempts]
        self._keeper.drop(*leases)
        for lease in leases:
            self._attempts.pop(lease, None)
        if not self._attempts:
            self._all_settled.set()
            self._busy.clear()
            self._fetcher.wake()

    def _stop_attempt(self, lease: Lease, reason: StopReason) -> None:
        attempt = self._attempts.get(lease)
        if attempt is not None:
            attempt.request_stop(reason)

    def _lease_lost(self, lease: Lease) -> None:
        attempt = self._attempts.get(lease)
        context = attempt.context if attempt is not None else None
        if attempt is None or context is None or not context.settling:
            self._stop_attempt(lease, StopReason.LOST)
        elif attempt.lease_check is None:
            attempt.lease_check = asyncio.create_task(self._check_lease(attempt))

    async def _check_lease(self, attempt: RunningAttempt) -> None:
        """Stop an attempt, unless its task has stored its own success, which ends the lease."""
        with contextlib.suppress(StoreError):
            [row] = await self._store.get([attempt.job.id])
            if row is not None and row.state is State.SUCCEEDED and row.lease == attempt.lease:
                return
        attempt.request_stop(StopReason.LOST)

    # -- shutdown

    async def _drain(self) -> None:
        events = (self._all_settled, self._grace_started)
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_settled.wait(), self.config.grace)

    async def _release_running(self) -> None:
        for attempt in list(self._attempts.values()):
            attempt.request_stop(StopReason.RELEASE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.release_timeout):
                await self._fetcher.wait_inflight_claim()  # may return more jobs to release
                await self._all_settled.wait()
        if self._attempts:
            ids = [str(attempt.job.id) for attempt in self._attempts.values()]
            more = f" and {len(ids) - MAX_LOGGED_IDS} more" * (len(ids) > MAX_LOGGED_IDS)
            log.error(
                "jobs did not stop in time; will be retried after lease expiry: %s",
                ", ".join(ids[:MAX_LOGGED_IDS]) + more,
            )
