"""A worker: claims jobs, runs them, settles how they ended.

The fetch loop waits for free slots and for news of work (or the poll interval), and claims at most
as many jobs as there are free slots. Each job runs as a task of its own and is settled at its end.
`stop` ends the claiming; what still runs after the grace period is released, uncounted. A crash
leaves leases to run out: the jobs are then claimed by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from windlass.core.codec import Codec
from windlass.core.errors import StaleLeaseError, StoreError
from windlass.core.ids import uuid7
from windlass.core.job import JobRow
from windlass.core.lease import DEFAULT_LEASE, Claim, Lease
from windlass.core.outcome import Aborted, Failed, Outcome, Released
from windlass.core.query import Query
from windlass.core.state import State
from windlass.store import Store
from windlass.task import Registry
from windlass.worker.cleaner import Cleaner
from windlass.worker.config import WorkerConfig
from windlass.worker.context import RETRY_STORE, Context
from windlass.worker.executor import TaskRunner, describe
from windlass.worker.follower import Follower
from windlass.worker.keeper import Keeper
from windlass.worker.kit import Kit, living
from windlass.worker.settler import Settler
from windlass.worker.sweeper import Sweeper

log = logging.getLogger("windlass.worker")
FLUSH = 0.5  # seconds between two writes of what a task says


@dataclass(slots=True)
class _Running:
    """One attempt under way. `why` is set when something other than the task ends it."""

    job: JobRow
    context: Context
    task: asyncio.Task[Outcome] = field(init=False)
    why: str | None = None


class Worker:
    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        config: WorkerConfig,
        kit: Kit | None = None,
    ) -> None:
        self.config = config
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._kit = kit or Kit()
        self._cleaner = Cleaner(store, self._kit.workspaces)
        self._settler = Settler(store, tasks, codec, self._cleaner)
        self._state: Any = None
        # By lease, for one job may run here twice: a thread that lost it, and the next attempt.
        self._running: dict[Lease, _Running] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._slots = dict(config.queues)
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()

    @property
    def settled(self) -> Mapping[State, int]:
        """How many attempts this worker has ended, by what became of their jobs."""
        return self._settler.settled

    def stop(self) -> None:
        """Claim no more; end when the running tasks have, or after the grace period."""
        self._stopping.set()
        self._freed.set()

    async def run(self) -> None:
        try:
            with self._kit.on_loop(asyncio.get_running_loop()):
                async with living(self._kit.lifespan) as self._state:
                    await self._work()
        finally:
            await self._store.close()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        keeper = Keeper(
            self._store.twin(),
            on_lost=lambda lease: loop.call_soon_threadsafe(self._end, lease, "lost"),
            on_cancel=lambda lease: loop.call_soon_threadsafe(self._end, lease, "cancel"),
        )
        keeper.start()
        threads = ThreadPoolExecutor(sum(self._slots.values()), "windlass-task")
        runner = TaskRunner(self._tasks, self._codec, threads, self._store, self._kit)
        beside = [loop.create_task(work) for work in self._beside()]
        try:
            await self._fetch(runner, keeper)
            await self._drain()
        finally:
            await self._release()  # also when this is cancelled: nothing runs on without its lease
            for work in beside:
                work.cancel()
            for ended in await asyncio.gather(*beside, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("a loop beside the claiming broke", exc_info=ended)
            threads.shutdown(wait=False, cancel_futures=True)
            await loop.run_in_executor(None, keeper.stop)

    def _beside(self) -> list[Coroutine[Any, Any, None]]:
        """The loops that go on beside the claiming, on the same event loop."""
        config = self.config
        sweeper = Sweeper(self._store, config.sweep, config.retention, self._cleaner)
        follower = Follower(
            self._store,
            config.follow,
            running=lambda: self._running,
            on_cancel=lambda lease: self._end(lease, "cancel"),
        )
        return [sweeper.run(), follower.run()]

    # -- claiming

    async def _fetch(self, runner: TaskRunner, keeper: Keeper) -> None:
        token = uuid7()
        while not self._stopping.is_set():
            free = [(queue, slots) for queue, slots in self._slots.items() if slots > 0]
            if not free:
                self._freed.clear()
                await self._freed.wait()
                continue
            try:
                # The token stays until an answer came: what a lost answer claimed is not lost.
                claim = Claim(
                    token=token, worker=self.config.name, queues=free, lease=self.config.lease
                )
                jobs = await self._store.claim(claim)
                token = uuid7()
                for job in jobs:
                    self._begin(job, runner, keeper)
                if not jobs:
                    if self.config.burst and not self._running and not await self._waiting():
                        return
                    await self._wait([queue for queue, _ in free])
            except StoreError as error:
                log.warning("claiming failed, trying again: %s", error)
                await self._pause(RETRY_STORE)

    async def _wait(self, queues: Sequence[str]) -> None:
        """For news of work, or to be stopped."""
        either = {
            asyncio.ensure_future(self._store.wait(queues, self.config.poll)),
            asyncio.ensure_future(self._stopping.wait()),
        }
        try:
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in either:
                waiting.cancel()
            await asyncio.wait(either)
        for ended in done:
            ended.result()

    async def _waiting(self) -> bool:
        """Whether a job of our queues may still become claimable, by nobody's doing."""
        stats = await self._store.stats()
        ours = {queue for queue in self._slots if queue in stats and not stats[queue].paused}
        moving = (State.QUEUED, State.RETRYING)
        if any(stats[queue].counts.get(state) for queue in ours for state in moving):
            return True
        created = {queue for queue in ours if stats[queue].counts.get(State.CREATED)}
        cursor: str | None = None
        while created:
            query = Query(
                states=frozenset({State.CREATED}), queues=frozenset(created), cursor=cursor
            )
            page = await self._store.find(query)
            if any(not row.held for row in page.rows):
                return True
            if (cursor := page.cursor) is None:
                break
        return False

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # -- running

    def _begin(self, job: JobRow, runner: TaskRunner, keeper: Keeper) -> None:
        self._slots[job.queue] -= 1
        keeper.hold(job.lease, self.config.lease or job.lease_seconds or DEFAULT_LEASE)
        context = self._context(job)
        running = self._running[job.lease] = _Running(job, context)
        running.task = asyncio.create_task(runner.run(job, context))
        attempt = asyncio.create_task(self._attempt(running, keeper))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    def _context(self, job: JobRow) -> Context:
        spec = self._tasks.get(job.task)
        return Context(
            job,
            self._store,
            self._codec,
            asyncio.get_running_loop(),
            (spec.options.stages if spec else None) or self._kit.stages,
            kit=self._kit,
            state=self._state,
        )

    async def _attempt(self, running: _Running, keeper: Keeper) -> None:
        job = running.job
        speaking = asyncio.create_task(self._speak(running.context))
        try:
            outcome = await self._outcome(running)
            speaking.cancel()
            await asyncio.wait({speaking})  # what it could not store goes with the settle
            if outcome is not None:
                await self._settler.settle(
                    running.context,
                    outcome,
                    lambda: running.why == "lost",
                    canceled=running.why == "cancel",
                )
        except Exception:
            log.exception("job %s is left to its lease: this worker could not end it", job.id)
        finally:
            speaking.cancel()
            keeper.let_go(job.lease)
            del self._running[job.lease]
            self._slots[job.queue] += 1
            self._freed.set()

    async def _outcome(self, running: _Running) -> Outcome | None:
        """How it ended; None when the lease is lost and nothing may be said about it."""
        await asyncio.wait({running.task})
        if running.why == "lost":
            log.warning("job %s was lost to another worker; its result is dropped", running.job.id)
            return None
        ended = None if running.task.cancelled() else running.task.result()
        if running.why == "release" and (ended is None or isinstance(ended, Failed)):
            return Released()  # whatever it made of being stopped, it is not the task's failure
        if ended is not None:
            return ended
        if running.why == "cancel":
            return Aborted(reason="canceled")
        # Nobody asked for it: something that the task awaited was cancelled under it.
        error = asyncio.CancelledError("the task was cancelled from within")
        return Failed(failure=describe(error, self._codec, step=running.context.current_step))

    async def _speak(self, context: Context) -> None:
        """Store what the task says, at most twice a second."""
        while True:
            await asyncio.sleep(FLUSH)
            try:
                await context.flush()
            except StaleLeaseError:
                self._end(context.job.lease, "lost")
                return
            except StoreError as error:
                log.warning("could not store what job %s says: %s", context.job.id, error)

    def _end(self, lease: Lease, why: str) -> None:
        running = self._running.get(lease)
        if running is None:
            return
        if running.why is None:
            running.context.cancel_flag.set()
            running.task.cancel()
        if running.why is None or why == "lost":
            running.why = why

    async def _drain(self) -> None:
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self.config.grace)

    async def _release(self) -> None:
        for lease in list(self._running):
            self._end(lease, "release")
        if self._attempts:
            await asyncio.wait(self._attempts)
