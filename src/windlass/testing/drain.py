"""Runs the jobs that a test enqueued, with workers of the app itself.

Waits for a change in the store while a job can be claimed or runs. The clock stands still, or with
`until_empty` moves from one due instant to the next, and never while an attempt runs. Stops when
no job is left that could run. The leases of a crashed worker expire with the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from windlass.app import Windlass
from windlass.core.clock import Instant
from windlass.core.decisions.maintenance import sweep
from windlass.core.errors import ConflictError
from windlass.core.ids import uuid7
from windlass.core.job.lease import DEFAULT_LEASE
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, State
from windlass.core.query.job_query import MAX_PAGE, JobQuery
from windlass.store import Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import no_jitter
from windlass.testing.spy_store import SimulatedWorker, SpyStore, TwinState, run_immediate
from windlass.worker import Worker, WorkerConfig

MAX_ATTEMPTS = 10_000
_KEEP_ALL = Retention(succeeded=0, canceled=0, failed=0, log=0, rollups=0)
_NEVER = 86_400.0
_CRASHED_RELEASE = 0.05  # seconds that a crashed worker waits for its settles, which never end
_UNWIND_TIMEOUT = 20.0
_RECHECK = 1.0  # seconds after which to read the store again, without a change
_WAITING = frozenset({State.CREATED, State.RETRYING})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """Options of one drain. The jobs of `must_end` must end, in whichever worker they run."""

    move_clock: bool
    concurrency: int = 1
    must_end: Collection[UUID] = ()


class Drainer:
    """Runs workers over a twin. `store` is the memory store, without crashes or inline mode."""

    def __init__(self, app: Windlass, store: Store, state: TwinState, clock: VirtualClock) -> None:
        self._app = app
        self._store = store
        self._state = state
        self._clock = clock

    def rows(self, *states: State) -> list[JobRow]:
        """Return all jobs, or the jobs in one of these states, oldest first."""
        query = JobQuery(states=frozenset(states), limit=MAX_PAGE)
        found: list[JobRow] = []
        cursor: str | None = None
        while True:
            page = run_immediate(self._store.find(replace(query, cursor=cursor)))
            found += page.rows
            if (cursor := page.cursor) is None:
                return found[::-1]

    async def run(self, options: DrainOptions) -> None:
        store = self._app.client().store
        if not (isinstance(store, SpyStore) and store.state is self._state):
            raise ConflictError(
                "the app does not use this twin's store: "
                "the twin's block has ended, or another twin is active"
            )
        max_claimed = self._state.claimed + MAX_ATTEMPTS
        while True:
            seen = self._state.changes.count
            if not self._has_work(None, options):
                return
            if self._claimable():
                if await self._work(options, max_claimed) or options.move_clock:
                    continue
                return  # the worker crashed; its leases expire when the clock moves
            # A job of `must_end` runs in another worker: the one whose task enqueued it.
            await self._state.changes.wait(seen, _RECHECK)

    # -- one worker

    async def _work(self, options: DrainOptions, max_claimed: int) -> bool:
        """Run one worker until no job is left for it; return whether it did not crash."""
        state = self._state
        simulated = SimulatedWorker(f"drain-{uuid7().hex[-8:]}", state.trigger)
        queues = {spec.options.queue for spec in self._app.tasks} | self._claimable()
        worker = self._worker(simulated, dict.fromkeys(sorted(queues), options.concurrency))
        with state.registered(simulated):
            running = asyncio.create_task(worker.run())
            try:
                while not (simulated.crashed or running.done()):
                    seen = state.changes.count
                    self._check(max_claimed)
                    if not self._has_work(simulated, options) or not self._claimable() <= queues:
                        break
                    await self._wait_for_change(seen, running)
                worker.stop()
            except BaseException:
                running.cancel()
                raise
            finally:
                while not (simulated.crashed or running.done()):
                    await self._wait_for_change(state.changes.count, running)
                if simulated.crashed:
                    await _unwind(running)
        if not simulated.crashed:
            running.result()  # raises the error of a failed lifespan
        return not simulated.crashed

    def _worker(self, simulated: SimulatedWorker, queues: dict[str, int]) -> Worker:
        config = WorkerConfig(
            queues=queues,
            name=simulated.name,
            sweep_interval=_NEVER,  # the clock does not move by itself
            retention=_KEEP_ALL,
            wait_for_batch=False,  # no more jobs arrive
            isolate=False,  # no process died, and a child process lacks the objects of the test
            schedules=False,  # tests call `tick`
        )
        if simulated.trigger is not None:
            config = replace(config, release_timeout=_CRASHED_RELEASE)
        with self._state.owning_handles(simulated):
            return self._app.worker(config)

    async def _wait_for_change(self, seen: int, running: asyncio.Task[Any]) -> None:
        changed = asyncio.ensure_future(self._state.changes.wait(seen, _RECHECK))
        try:
            await asyncio.wait({changed, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _check(self, max_claimed: int) -> None:
        if self._state.claimed > max_claimed:
            names = sorted({row.task for row in self.rows(*ACTIVE)})
            raise AssertionError(
                f"the drain did not end after {MAX_ATTEMPTS:,} attempts; unfinished tasks: "
                f"{', '.join(names)}. Does a task always enqueue itself or snooze?"
            )

    # -- remaining jobs, and the clock

    def _has_work(self, simulated: SimulatedWorker | None, options: DrainOptions) -> bool:
        """Whether a job is left to wait for. Promotes due jobs and moves the clock if allowed."""
        while not self._has_unsettled(simulated):
            moved = self._sweep()
            if self._claimable() or self._runs_elsewhere(options.must_end):
                return True
            if not (moved or (options.move_clock and self._advance_clock())):
                return False
        return True

    def _has_unsettled(self, simulated: SimulatedWorker | None) -> bool:
        """Whether this worker still has a job to settle."""
        leases = list(simulated.leases) if simulated is not None else []
        rows = run_immediate(self._store.get([lease.job_id for lease in leases]))
        return any(
            row is not None and row.state is State.RUNNING and row.lease == lease
            for row, lease in zip(rows, leases, strict=True)
        )

    def _runs_elsewhere(self, must_end: Collection[UUID]) -> bool:
        """Whether a job that must end runs in another worker of this twin."""
        rows = run_immediate(self._store.get(list(must_end)))
        workers = self._state.workers
        return any(r is not None and r.state is State.RUNNING and r.worker in workers for r in rows)

    def _claimable(self) -> set[str]:
        """Return the queues with a claimable job. `_sweep` has removed expired jobs before."""
        stats = run_immediate(self._store.insights.stats())
        return {
            queue
            for queue, found in stats.items()
            if found.counts.get(State.QUEUED) and not found.paused
        }

    def _sweep(self) -> bool:
        """Promote, expire and rescue jobs; return whether a job changed."""
        self._extend_leases()
        rows = run_immediate(self._store.due(MAX_PAGE))
        results = run_immediate(self._store.apply([sweep(row, random=no_jitter) for row in rows]))
        return any(result.applied for result in results)

    def _extend_leases(self) -> None:
        """Extend the leases of running workers.

        Their keepers use the real clock, so a jump of the virtual clock would expire the leases.
        """
        workers = list(self._state.workers.values())  # other threads change it
        leases = [
            lease
            for simulated in workers
            if not simulated.crashed
            for lease in list(simulated.leases)
        ]
        run_immediate(self._store.extend(leases, DEFAULT_LEASE))

    def _advance_clock(self) -> bool:
        """Move the clock to the next due job, free rate slot or lease end of a crashed worker."""
        stats = run_immediate(self._store.insights.stats())
        paused = {queue for queue, found in stats.items() if found.paused}
        rows = [row for row in self.rows(*ACTIVE) if row.queue not in paused]
        instants = [_wakes_at(row, self._state.workers) for row in rows]
        gates = sorted({row.gate for row in rows if row.gate is not None})
        instants += [
            gate.next_check_at for gate in run_immediate(self._store.insights.gates(gates))
        ]
        instant = min((each for each in instants if each is not None), default=None)
        if instant is None or instant <= self._clock.now():
            return False
        self._clock.jump(instant)
        return True


def _wakes_at(row: JobRow, workers: Container[str]) -> Instant | None:
    """Return when a job becomes due, or when the lease of its crashed worker expires."""
    if row.state is State.RUNNING:
        return None if row.worker in workers else row.lease_until
    return row.due_at if row.state in _WAITING and not (row.held or row.waiting_for) else None


async def _unwind(running: asyncio.Task[None]) -> None:
    """Wait until a crashed worker has unwound. None of its writes reach the store."""
    running.cancel()
    await asyncio.wait({running}, timeout=_UNWIND_TIMEOUT)
    if not running.done():
        raise AssertionError(f"the crashed worker did not stop within {_UNWIND_TIMEOUT:g} s")
    if not running.cancelled():
        running.exception()  # marks the SimulatedCrash as retrieved
