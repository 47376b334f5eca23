"""A worker: claims jobs, runs them, and settles their outcomes.

Each loop has its own file; this module connects them. The fetcher claims jobs, the slots start them
as asyncio tasks, the settler stores the outcomes, the keeper holds each lease until then. `stop`
ends the claiming. Attempts that still run after the grace period are released, uncounted. Attempts
that do not stop even then are left to lease expiry. After a crash, leases expire and other workers
claim the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from windlass.core.codec import Codec
from windlass.core.errors import StoreError
from windlass.core.job.state import State
from windlass.core.worker_presence import Readiness, store_problem, unresponsive_problems
from windlass.process.cancellation import run_uncancelled
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.app_parts import AppParts
from windlass.worker.child.executor import ChildExecutor
from windlass.worker.config import WorkerConfig
from windlass.worker.execution.attempt_runner import AttemptRunner
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
from windlass.worker.running_attempts import RunningAttempts, StopReason
from windlass.worker.slots import WorkerSlots

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
        parts: AppParts | None = None,
        *,
        keeper: Callable[..., Keeper] = Keeper,
    ) -> None:
        self.config = config
        self._make_keeper = keeper
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._parts = parts or AppParts()
        self._cleaner = WorkspaceCleaner(store, self._parts.workspaces)
        self._grace_started = asyncio.Event()  # set when a stop has a time limit
        self._loop_error: BaseException | None = None
        slots = sum(config.queues.values())
        self._threads = ThreadPoolExecutor(slots, "windlass-task")
        self._children = ChildExecutor(
            limit=slots,
            app=self._parts.app,
            lifespan=self._parts.lifespan is not None,
            # Shorter than the worker's own limit, so that killed jobs are requeued in time.
            grace=max(config.release_timeout / 2, config.release_timeout - 2),
        )
        self._attempts = RunningAttempts(store, config.lease)
        self._settler = Settler(store, tasks, codec, self._cleaner, self._attempts)
        self._runner = AttemptRunner(
            store,
            tasks,
            codec,
            parts=self._parts,
            executor=TaskExecutor(
                tasks,
                codec,
                self._threads,
                store,
                parts=self._parts,
                children=self._children,
                isolate=config.isolate,
            ),
            settler=self._settler,
        )
        self._slots = WorkerSlots(self._runner, tasks, config)
        self._fetcher = Fetcher(
            store, config, slots=self._slots, attempts=self._attempts, tasks=tasks
        )
        self._presence = Presence(
            store,
            tasks,
            config,
            running=lambda: self.running,
            last_claim=lambda: self._fetcher.last_claim,
            free=lambda: self._slots.free,
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
        self._slots.stop()

    async def run(self) -> None:
        try:
            with self._parts.loop_context(asyncio.get_running_loop()):
                async with lifespan_state(self._parts.lifespan) as self._runner.state:
                    await self._work()
        finally:
            await self._store.close()

    async def _work(self) -> None:
        await self._declare_limits()
        loop = asyncio.get_running_loop()
        attempts = self._attempts
        attempts.keeper = self._make_keeper(
            self._store.twin(),
            on_lost=lambda lease: loop.call_soon_threadsafe(attempts.lease_lost, lease),
            on_cancel=lambda lease: loop.call_soon_threadsafe(
                attempts.stop, lease, StopReason.CANCEL
            ),
        )
        attempts.keeper.start()
        loops = [loop.create_task(work) for work in self._background_loops()]
        for task in loops:
            task.add_done_callback(self._loop_ended)
        try:
            await self._fetcher.run()
            await self._drain()
        finally:
            # Not interrupted by cancellation: no task may continue without its lease.
            await run_uncancelled(self._shut_down(loops))
        if self._loop_error is not None:
            raise self._loop_error

    async def _declare_limits(self) -> None:
        """Store the limits of the app's code before this worker enqueues or claims jobs."""
        if self._parts.declare_limits is None:
            return
        outages = OutageLog("Storing limits")
        while not self._fetcher.stopping:
            try:
                await self._parts.declare_limits(self._store)
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

    async def _shut_down(self, loops: list[asyncio.Task[None]]) -> None:
        """Stop all parts; each has a time limit, so the whole shutdown has one."""
        timeout = self.config.release_timeout
        await self._release_running()
        await self._settler.finish(timeout)
        await self._children.aclose()
        self._fetcher.abandon_claim()
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._attempts.keeper.stop(timeout)

    def _background_loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that run concurrently with the fetcher, on the same event loop."""
        config, attempts = self.config, self._attempts
        sweeper = Sweeper(self._store, config.sweep_interval, config.retention, self._cleaner)
        cancel_watcher = CancelWatcher(
            self._store,
            config.cancel_poll_interval,
            running=lambda: attempts.leases,
            on_cancel=lambda lease: attempts.stop(lease, StopReason.CANCEL),
            busy=attempts.busy,
        )
        event_writer = EventWriter(
            lambda: attempts,
            on_lost=lambda attempt: attempts.lease_lost(attempt.lease),
            busy=attempts.busy,
        )
        settler_loop = self._settler.run(self._slots.no_backlog)
        cleaner_loop = self._cleaner.run(CLEAN_EVERY * config.sweep_interval)
        parts = self._parts
        ticker = Ticker(
            self._store,
            schedules=parts.declared_schedules,
            prepare=parts.middleware.enqueue,
        )
        optional_loops = [ticker.run()] if config.schedules else []
        if config.maintenance:
            optional_loops.append(sweeper.run())
        loops = (cancel_watcher, event_writer, self._presence)
        return [settler_loop, cleaner_loop, *optional_loops, *(loop.run() for loop in loops)]

    # -- shutdown

    async def _drain(self) -> None:
        events = (self._attempts.idle, self._grace_started)
        waiting = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._attempts.idle.wait(), self.config.grace)

    async def _release_running(self) -> None:
        for attempt in list(self._attempts):
            attempt.request_stop(StopReason.RELEASE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.release_timeout):
                await self._fetcher.wait_inflight_claim()  # may return more jobs to release
                await self._attempts.idle.wait()
        if self._attempts:
            ids = [str(attempt.job.id) for attempt in self._attempts]
            more = f" and {len(ids) - MAX_LOGGED_IDS} more" * (len(ids) > MAX_LOGGED_IDS)
            log.error(
                "jobs did not stop in time; will be retried after lease expiry: %s",
                ", ".join(ids[:MAX_LOGGED_IDS]) + more,
            )
