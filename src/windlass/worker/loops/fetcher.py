"""Claims jobs and starts them when slots become free.

Waits for: capacity (free slots, or a low prefetch), then for new jobs or the poll interval.

Guarantees: a queue never runs more jobs than it has slots. A claim requests one job per free slot,
plus a prefetch: the jobs that the slots would finish within `PREFETCH_SECONDS` at the current rate.
So quick jobs are claimed in large batches, slow jobs one by one. A prefetched job is released for
other workers after `MAX_PREFETCH_WAIT`. A job that was running when a worker died is never
prefetched: a crash of this worker would count for that job, although it did not run. A claim whose
response was lost is repeated with its token.

Stops: on request, also while the store does not respond. Prefetched jobs are released immediately.
The inflight claim is finished during the rest of the shutdown, and its jobs are released. If its
call fails, the claim is repeated with its token for an empty queue: this returns the jobs already
claimed, and claims no more. At the end of the shutdown the claim is abandoned, and its leases
expire. After a crash, leases expire.

A worker with a free slot that completes no claim for 20 poll intervals is reported as unresponsive
(`core/worker_presence`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from windlass.core.errors import StoreError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.batch.batch_call import BatchCall
from windlass.worker.batch.collector import BatchCollector
from windlass.worker.config import WorkerConfig
from windlass.worker.context import STORE_RETRY_DELAY
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.loops.queue_slots import QueueSlots
from windlass.worker.running_attempt import RunningAttempt

log = logging.getLogger("windlass.worker")
MAX_PREFETCH_WAIT = 1.0  # seconds between claim and start of a prefetched job


class Fetcher:
    """`on_claimed` registers claimed jobs, `start` runs an attempt, `release` requeues one.

    `busy` is set while any claimed job is unsettled.
    """

    def __init__(
        self,
        store: Store,
        config: WorkerConfig,
        *,
        on_claimed: Callable[[list[JobRow], float], list[RunningAttempt]],
        start: Callable[[RunningAttempt], None],
        release: Callable[[RunningAttempt], None],
        busy: asyncio.Event,
        tasks: Registry,
    ) -> None:
        self._store = store
        self._config = config
        self._on_claimed = on_claimed
        self._start = start
        self._release = release
        self._busy = busy
        self._tasks = tasks
        self._collector = BatchCollector(
            tasks, self._batch_ready, wait_for_batch=config.wait_for_batch
        )
        self._queues = {queue: QueueSlots(queue, count) for queue, count in config.queues.items()}
        self._stopping = asyncio.Event()
        self._capacity = asyncio.Event()  # set when a queue may have capacity
        self._outages = OutageLog("Fetching jobs")
        self.last_claim: float | None = None  # loop time
        self._claim_sent_at: float | None = None  # when the claim without a response was first sent
        self._inflight_claim: asyncio.Future[list[JobRow]] | None = None
        self._claim_finisher: asyncio.Task[None] | None = None
        self._backlog = 0  # claimed jobs that wait for a slot, in all queues
        self.no_backlog = asyncio.Event()  # set while no claimed job waits for a slot
        self.no_backlog.set()

    def stop(self) -> None:
        self._stopping.set()
        self._capacity.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def free(self) -> int:
        """How many slots are free."""
        return sum(slots.free for slots in self._queues.values())

    async def run(self) -> None:
        """Run until `stop` or, in a burst, until the queues are empty."""
        token = uuid7()
        self._stop_waiter = asyncio.create_task(self._stopping.wait())
        releasing = asyncio.create_task(self._release_overdue())
        try:
            while not self._stopping.is_set():
                wanted = [
                    (slots.queue, count)
                    for slots in self._queues.values()
                    if (count := slots.to_claim)
                ]
                if not wanted:
                    self._capacity.clear()
                    await self._capacity.wait()
                    continue
                # The token stays until a response arrives, so jobs claimed by a lost response are
                # found again. Their leases may have started with the first of these calls.
                if self._claim_sent_at is None:
                    token, self._claim_sent_at = uuid7(), asyncio.get_running_loop().time()
                try:
                    more = await self._claim(token, wanted)
                    if not more and not self._stopping.is_set():
                        if self._config.burst and await self._burst_done():
                            return
                        await self._wait([queue for queue, _ in wanted])
                except StoreError as error:
                    self._inflight_claim = None
                    self._outages.failed(error)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), STORE_RETRY_DELAY)
        finally:
            releasing.cancel()
            self._stop_waiter.cancel()
            self._outages.log_recovery()
            self._release_all()
            if self._claim_sent_at is not None:
                self._claim_finisher = asyncio.create_task(self._finish_inflight_claim(token))

    async def _claim(self, token: UUID, wanted: list[tuple[str, int]]) -> bool:
        """Claim once; return whether a queue may hold more jobs: it returned all requested jobs."""
        config = self._config
        now = asyncio.get_running_loop().time()
        for queue, _ in wanted:
            self._queues[queue].update_prefetch(now)
        claim = Claim(token=token, worker=config.name, queues=wanted, lease=config.lease)
        # A stop does not cancel the call: jobs that it returns are released like the backlog.
        self._inflight_claim = asyncio.ensure_future(self._store.claim(claim))
        if not await self._wait_unless_stopped(self._inflight_claim):
            return False
        jobs = self._inflight_claim.result()
        self.last_claim = asyncio.get_running_loop().time()
        self._outages.succeeded()
        limits = dict(wanted)
        for attempt in self._accept(jobs):
            queue = attempt.job.queue
            if queue in limits:  # a repeated claim may return jobs of other queues
                limits[queue] -= 1
        if not self._stopping.is_set():  # else all of them are released
            for queue, _ in wanted:
                slots = self._queues[queue]
                self._fill_slots(slots)
                if slots.has_crashed_jobs:
                    self.release(attempt for attempt in slots.ready if attempt.job.isolated)
                if self._collector.needed:
                    self._fill_batches(slots, more=limits[queue] <= 0)
        self._update_backlog_event()
        return any(remaining <= 0 for remaining in limits.values())

    async def _wait_unless_stopped(self, call: asyncio.Future[Any]) -> bool:
        """Wait for a store call or a stop; return whether the call has ended."""
        waiting: set[asyncio.Future[Any]] = {call, self._stop_waiter}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return call.done()

    async def wait_inflight_claim(self) -> None:
        """Return when the result of the last claim is known."""
        if self._claim_finisher is not None:
            await asyncio.wait({self._claim_finisher})

    def abandon_claim(self) -> None:
        """Abandon the last claim; leases of jobs that it claimed expire."""
        for call in (self._claim_finisher, self._inflight_claim):
            if call is not None:
                call.cancel()

    async def _finish_inflight_claim(self, token: UUID) -> None:
        """Get the jobs of the last claim, to release them.

        If the pending call fails, repeat the claim for a queue without jobs: a repeat returns the
        jobs that the token has claimed, and this one can claim no others.
        """
        empty_queue = [(f"empty-{token}", 1)]  # a store may skip a claim for zero jobs
        config = self._config
        claim = Claim(token=token, worker=config.name, queues=empty_queue, lease=config.lease)
        while self._claim_sent_at is not None:
            try:
                if self._inflight_claim is None:
                    self._inflight_claim = asyncio.ensure_future(self._store.claim(claim))
                self._accept(await asyncio.shield(self._inflight_claim))
            except StoreError as error:
                self._inflight_claim = None
                self._outages.failed(error)
                await asyncio.sleep(STORE_RETRY_DELAY)
            except Exception:
                log.exception("jobs of the last claim will be retried after lease expiry")
                return
        self._release_all()

    def _accept(self, jobs: list[JobRow]) -> list[RunningAttempt]:
        assert self._claim_sent_at is not None
        attempts = self._on_claimed(jobs, self._claim_sent_at)
        self._claim_sent_at = self._inflight_claim = None
        for slots in self._queues.values():
            slots.has_crashed_jobs = False
        collecting = self._collector.needed
        for attempt in attempts:
            slots = self._queues[attempt.job.queue]
            if attempt.job.crash_count:
                slots.has_crashed_jobs = True
            if not (collecting and self._collector.add(attempt)):
                slots.ready.append(attempt)
                self._backlog += 1
        if collecting:
            for slots in self._queues.values():
                self._update_batch_counts(slots)
        return attempts

    def _fill_slots(self, slots: QueueSlots) -> None:
        if slots.filling:  # called by a job that ends immediately: the outer call continues
            return
        slots.filling = True
        try:
            while slots.free > 0 and slots.ready:
                slots.free -= 1
                self._backlog -= 1
                attempt = slots.ready.popleft()
                if attempt.batch_call is None:
                    self._start(attempt)
                    continue
                self._collector.started(attempt.batch_call)
                self._update_batch_counts(slots)
                for member in attempt.batch_call.attempts:
                    self._start(member)
        finally:
            slots.filling = False

    def slot_freed(self, queue: str, jobs: int = 1) -> None:
        """Free a slot after a job, or after a batch of `jobs` jobs, has ended."""
        slots = self._queues[queue]
        slots.free += 1
        slots.ended += jobs
        if slots.ready and not self._stopping.is_set():
            self._fill_slots(slots)
            if not self._backlog:
                self.no_backlog.set()
        if not self._capacity.is_set() and slots.to_claim:
            self._capacity.set()

    def wake(self) -> None:
        """Check again: all jobs are settled, so a burst may be over."""
        self._capacity.set()

    def _update_backlog_event(self) -> None:
        if self._backlog:
            self.no_backlog.clear()
        else:
            self.no_backlog.set()

    async def _wait(self, queues: list[str]) -> None:
        """Wait for new jobs, for free slots in a full queue, or for a stop."""
        self._capacity.clear()
        full = [slots for slots in self._queues.values() if slots.queue not in queues]
        if any(slots.to_claim for slots in full):
            return  # a slot was freed during the claim
        wake_event = self._capacity if self._config.burst or full else self._stopping
        waiting = {
            asyncio.ensure_future(self._store.wait(queues, self._config.poll_interval)),
            asyncio.ensure_future(wake_event.wait()),
        }
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()
            await asyncio.wait(waiting)
        for future in done:
            future.result()

    # -- batches

    def _batch_ready(self, call: BatchCall) -> None:
        """Queue a batch for a slot; until it starts, it may still grow."""
        first = call.attempts[0]
        first.claimed_at = asyncio.get_running_loop().time()
        slots = self._queues[first.job.queue]
        slots.ready.append(first)
        self._backlog += 1
        self._update_batch_counts(slots)
        if not self._stopping.is_set():
            self._fill_slots(slots)
            self._update_backlog_event()
            if slots.to_claim:
                self._capacity.set()

    def _update_batch_counts(self, slots: QueueSlots) -> None:
        slots.batch_wanted = self._collector.wanted(slots.queue)
        calls = [attempt.batch_call for attempt in slots.ready if attempt.batch_call is not None]
        slots.batch_extra = sum(len(call.attempts) - 1 for call in calls)

    def _fill_batches(self, slots: QueueSlots, *, more: bool) -> None:
        """Start batches that need not wait; release surplus jobs of other tasks."""
        single = [attempt for attempt in slots.ready if attempt.batch_call is None]
        surplus = len(single) - slots.prefetch
        if slots.batch_wanted and surplus > 0:
            self._collector.stop_filling(slots.queue)
            self.release(single[-surplus:])
        self._update_batch_counts(slots)
        more = more and bool(slots.batch_wanted and slots.to_claim)
        self._collector.after_claim(slots.queue, more=more)

    # -- releasing claimed jobs

    async def _release_overdue(self) -> None:
        """Release jobs that waited too long for a slot, oldest first."""
        while True:
            await self._busy.wait()
            await asyncio.sleep(MAX_PREFETCH_WAIT / 2)
            limit = asyncio.get_running_loop().time() - MAX_PREFETCH_WAIT
            for slots in self._queues.values():
                overdue = [attempt for attempt in slots.ready if attempt.claimed_at < limit]
                if overdue:
                    slots.prefetch = 0
                    self.release(overdue)

    def release(self, attempts: Iterable[RunningAttempt]) -> None:
        for attempt in list(attempts):
            slots = self._queues[attempt.job.queue]
            slots.ready.remove(attempt)
            self._backlog -= 1
            if attempt.batch_call is None:
                self._release(attempt)
                continue
            self._collector.started(attempt.batch_call)
            self._update_batch_counts(slots)
            for member in attempt.batch_call.attempts:
                self._release(member)
        self._update_backlog_event()

    def _release_all(self) -> None:
        self.release(attempt for slots in self._queues.values() for attempt in slots.ready)
        for attempt in self._collector.close_all():
            self._release(attempt)

    # -- burst mode

    async def _burst_done(self) -> bool:
        """Whether nothing runs here, and no job of these queues can become claimable by itself.

        A job that runs elsewhere can: its worker may be dead. A job whose task is unknown here
        waits for another worker.
        """
        if self._busy.is_set():
            return False
        check = asyncio.ensure_future(self._has_jobs())
        try:
            return await self._wait_unless_stopped(check) and not check.result()
        finally:
            check.cancel()

    async def _has_jobs(self) -> bool:
        stats = await self._store.insights.stats()
        queues = {
            queue
            for queue in self._queues
            if queue in stats and not stats[queue].paused and any(stats[queue].counts.values())
        }
        cursor: str | None = None
        while queues:
            query = JobQuery(states=ACTIVE, queues=frozenset(queues), cursor=cursor)
            page = await self._store.find(query)
            if any(not row.held and self._tasks.get(row.task) for row in page.rows):
                return True
            if (cursor := page.cursor) is None:
                break
        return False
