"""Claims jobs for free slots.

Waits for: capacity (free slots, or a low prefetch), then for new jobs or the poll interval.

Guarantees: a claim requests no more jobs than the slots can take (`worker/slots`). A claim whose
response was lost is repeated with its token.

Stops: on request, also while the store does not respond. Waiting jobs are released immediately.
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
from windlass.worker.config import WorkerConfig
from windlass.worker.context import STORE_RETRY_DELAY
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.running_attempts import RunningAttempts
from windlass.worker.slots import WorkerSlots

log = logging.getLogger("windlass.worker")


class Fetcher:
    def __init__(
        self,
        store: Store,
        config: WorkerConfig,
        *,
        slots: WorkerSlots,
        attempts: RunningAttempts,
        tasks: Registry,
    ) -> None:
        self._store = store
        self._config = config
        self._slots = slots
        self._attempts = attempts
        self._tasks = tasks
        self._outages = OutageLog("Claiming jobs")
        self.last_claim: float | None = None  # loop time
        self._claim_sent_at: float | None = None  # when the claim without a response was first sent
        self._inflight_claim: asyncio.Future[list[JobRow]] | None = None
        self._claim_finisher: asyncio.Task[None] | None = None

    @property
    def stopping(self) -> bool:
        return self._slots.stopping.is_set()

    async def run(self) -> None:
        """Run until `stop` of the slots or, in a burst, until the queues are empty."""
        token = uuid7()
        slots = self._slots
        self._stop_waiter = asyncio.create_task(slots.stopping.wait())
        releasing = asyncio.create_task(slots.release_overdue(self._attempts.busy))
        try:
            while not slots.stopping.is_set():
                wanted = slots.wanted()
                if not wanted:
                    slots.capacity.clear()
                    await slots.capacity.wait()
                    continue
                # The token stays until a response arrives, so jobs claimed by a lost response are
                # found again. Their leases may have started with the first of these calls.
                if self._claim_sent_at is None:
                    token, self._claim_sent_at = uuid7(), asyncio.get_running_loop().time()
                try:
                    more = await self._claim(token, wanted)
                    if not more and not slots.stopping.is_set():
                        if self._config.burst and await self._burst_done():
                            return
                        await self._wait([queue for queue, _ in wanted])
                except StoreError as error:
                    self._inflight_claim = None
                    self._outages.failed(error)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(slots.stopping.wait(), STORE_RETRY_DELAY)
        finally:
            releasing.cancel()
            self._stop_waiter.cancel()
            self._outages.log_recovery()
            slots.release_all()
            if self._claim_sent_at is not None:
                self._claim_finisher = asyncio.create_task(self._finish_inflight_claim(token))

    async def _claim(self, token: UUID, wanted: list[tuple[str, int]]) -> bool:
        """Claim once; return whether a queue may hold more jobs: it returned all requested jobs."""
        config = self._config
        now = asyncio.get_running_loop().time()
        for queue, _ in wanted:
            self._slots.queues[queue].update_prefetch(now)
        claim = Claim(token=token, worker=config.name, queues=wanted, lease=config.lease)
        # A stop does not cancel the call: jobs that it returns are released like the backlog.
        self._inflight_claim = asyncio.ensure_future(self._store.claim(claim))
        if not await self._wait_unless_stopped(self._inflight_claim):
            return False
        jobs = self._inflight_claim.result()
        self.last_claim = asyncio.get_running_loop().time()
        if self._outages.started_at is not None:
            self._outages.succeeded()
        return self._accept(jobs, wanted)

    def _accept(self, jobs: list[JobRow], wanted: list[tuple[str, int]]) -> bool:
        assert self._claim_sent_at is not None
        attempts = self._attempts.register(jobs, self._claim_sent_at)
        self._claim_sent_at = self._inflight_claim = None
        return self._slots.accept(attempts, wanted)

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
                self._accept(await asyncio.shield(self._inflight_claim), [])
            except StoreError as error:
                self._inflight_claim = None
                self._outages.failed(error)
                await asyncio.sleep(STORE_RETRY_DELAY)
            except Exception:
                log.exception("jobs of the last claim will be retried after lease expiry")
                return
        self._slots.release_all()

    async def _wait(self, queues: list[str]) -> None:
        """Wait for new jobs, for free slots in a full queue, or for a stop."""
        worker_slots, burst = self._slots, self._config.burst
        worker_slots.capacity.clear()
        full = [slots for slots in worker_slots.queues.values() if slots.queue not in queues]
        if any(slots.to_claim for slots in full):
            return  # a slot was freed during the claim
        wake_event = worker_slots.capacity if burst or full else worker_slots.stopping
        waiting = {
            asyncio.ensure_future(self._store.wait(queues, self._config.poll_interval)),
            asyncio.ensure_future(wake_event.wait()),
        }
        if burst and self._attempts.busy.is_set():  # once all have ended, the burst may be over
            waiting.add(asyncio.ensure_future(self._attempts.idle.wait()))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in waiting:
                future.cancel()
            await asyncio.wait(waiting)
        for future in done:
            future.result()

    # -- burst mode

    async def _burst_done(self) -> bool:
        """Whether nothing runs here, and no job of these queues can become claimable by itself.

        A job that runs elsewhere can: its worker may be dead. A job whose task is unknown here
        waits for another worker.
        """
        if self._attempts.busy.is_set():
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
            for queue in self._slots.queues
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
