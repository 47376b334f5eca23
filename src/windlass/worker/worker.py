"""A worker: claims jobs, runs them, settles how they ended.

The fetch loop waits for free slots and for news of work (or the poll interval), and claims at most
as many jobs as there are free slots. Each job runs as a task of its own and is settled at its end;
a settle that the store cannot take is repeated until it can or the lease is lost. `stop` ends the
claiming; what still runs after the grace period is released, uncounted. A crash leaves leases to
run out: the jobs are then claimed by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from windlass.core.codec import Codec
from windlass.core.errors import StaleLeaseError, StoreError
from windlass.core.ids import uuid7
from windlass.core.job import JobRow
from windlass.core.lease import Claim
from windlass.core.outcome import Aborted, Outcome, Released, settle
from windlass.core.state import State
from windlass.core.transition import Transition
from windlass.store import Store
from windlass.task import Registry
from windlass.worker.config import WorkerConfig
from windlass.worker.context import Context
from windlass.worker.executor import TaskRunner
from windlass.worker.keeper import Keeper
from windlass.worker.sweeper import Sweeper

log = logging.getLogger("windlass.worker")
FLUSH = 0.5  # seconds between two writes of what a task says
RETRY_STORE = 0.25


@dataclass(slots=True)
class _Running:
    """One attempt under way. `why` is set when something other than the task ends it."""

    job: JobRow
    context: Context
    task: asyncio.Task[Outcome] = field(init=False)
    why: str | None = None


class Worker:
    def __init__(self, store: Store, tasks: Registry, codec: Codec, config: WorkerConfig) -> None:
        self.config = config
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._running: dict[UUID, _Running] = {}
        self._slots = dict(config.queues)
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self.settled: dict[State, int] = {}

    def stop(self) -> None:
        """Claim no more; end when the running tasks have, or after the grace period."""
        self._stopping.set()
        self._freed.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        keeper = Keeper(
            self._store.twin(),
            self.config.lease,
            on_lost=lambda job_id: loop.call_soon_threadsafe(self._end, job_id, "lost"),
            on_cancel=lambda job_id: loop.call_soon_threadsafe(self._end, job_id, "cancel"),
        )
        keeper.start()
        slots = max(1, sum(self._slots.values()))
        threads = ThreadPoolExecutor(slots, "windlass-task")
        runner = TaskRunner(self._tasks, self._codec, threads)
        sweeper = Sweeper(self._store, self.config.sweep, self.config.retention)
        sweeping = loop.create_task(sweeper.run(), name="windlass-sweeper")
        try:
            async with asyncio.TaskGroup() as attempts:
                await self._fetch(attempts, runner, keeper)
                await self._drain()
        finally:
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            threads.shutdown(wait=False, cancel_futures=True)
            await loop.run_in_executor(None, keeper.stop)
            await self._store.close()

    # -- claiming

    async def _fetch(self, attempts: asyncio.TaskGroup, runner: TaskRunner, keeper: Keeper) -> None:
        token = uuid7()
        while not self._stopping.is_set():
            free = [(queue, slots) for queue, slots in self._slots.items() if slots > 0]
            if not free:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                # The token stays until an answer came: what a lost answer claimed is not lost.
                jobs = await self._store.claim(
                    Claim(token=token, worker=self.config.name, queues=free, lease=self._lease())
                )
            except StoreError as error:
                log.warning("claiming failed, trying again: %s", error)
                await self._pause(RETRY_STORE)
                continue
            token = uuid7()
            for job in jobs:
                self._slots[job.queue] -= 1
                keeper.hold(job.lease)
                attempts.create_task(self._attempt(job, runner, keeper))
            if not jobs:
                if self.config.burst and not self._running and not await self._waiting():
                    return
                await self._store.wait([queue for queue, _ in free], self.config.poll)

    def _lease(self) -> float:
        return self.config.lease

    async def _waiting(self) -> bool:
        """Whether a job of our queues may still become claimable."""
        stats = await self._store.stats()
        return any(
            count and state is not State.RUNNING
            for queue in self._slots
            if queue in stats
            for state, count in stats[queue].counts.items()
        )

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # -- running

    async def _attempt(self, job: JobRow, runner: TaskRunner, keeper: Keeper) -> None:
        context = Context(job, self._store, self._codec, asyncio.get_running_loop())
        running = self._running[job.id] = _Running(job, context)
        running.task = asyncio.create_task(runner.run(job, context))
        speaking = asyncio.create_task(self._speak(context))
        try:
            outcome = await self._outcome(running)
            if outcome is not None:
                await self._settle(running, outcome)
        finally:
            speaking.cancel()
            keeper.let_go(job.lease)
            del self._running[job.id]
            self._slots[job.queue] += 1
            self._freed.set()

    async def _outcome(self, running: _Running) -> Outcome | None:
        """How it ended; None when the lease is lost and nothing may be said about it."""
        await asyncio.wait({running.task})
        if running.why == "lost":
            log.warning("job %s was lost to another worker; its result is dropped", running.job.id)
            return None
        if running.task.cancelled():
            return Released() if running.why == "release" else Aborted(reason="canceled")
        return running.task.result()

    async def _settle(self, running: _Running, outcome: Outcome) -> None:
        job = running.job
        spec = self._tasks.get(job.task)
        wish: Transition = settle(
            job,
            outcome,
            random=random.random,
            records=running.context.take(),
            backoff=spec.options.backoff if spec else None,
        )
        while True:
            try:
                [answer] = await self._store.apply([wish])
            except StoreError as error:
                if running.why == "lost":
                    return
                log.warning("settling job %s failed, trying again: %s", job.id, error)
                await asyncio.sleep(RETRY_STORE)
                continue
            if answer.applied and answer.state is not None:
                self.settled[answer.state] = self.settled.get(answer.state, 0) + 1
            else:
                log.warning("job %s: the settle was answered %s", job.id, answer.status)
            return

    async def _speak(self, context: Context) -> None:
        """Store what the task says, at most twice a second."""
        while True:
            await asyncio.sleep(FLUSH)
            try:
                await context.flush()
            except StaleLeaseError:
                self._end(context.job.id, "lost")
                return
            except StoreError as error:
                log.warning("could not store what job %s says: %s", context.job.id, error)

    def _end(self, job_id: UUID, why: str) -> None:
        running = self._running.get(job_id)
        if running is not None and running.why is None:
            running.why = why
            running.context.cancel_flag.set()
            running.task.cancel()

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.grace):
                while self._running:
                    self._freed.clear()
                    await self._freed.wait()
        for job_id in list(self._running):
            self._end(job_id, "release")
