"""Stores the outcomes of attempts, many in one write, and removes workspaces of finished jobs.

Waits for: the first outcome, then at most `BATCH_DELAY` while jobs wait for a slot, because more
outcomes follow soon. Outcomes that arrive during a write are part of the next. Guarantees: a settle
is repeated until the store accepts it or the lease is lost. An invalid transition fails the
attempt. The workspace of a cancelled attempt is removed before its job is canceled; the workspace
of a success is removed after the success is stored. Stops: on request, after its last write. After
a crash, the lease expires, and the workspace cleaner removes the directories.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from windlass.core.codec import Codec
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Succeeded,
    Suspended,
    settle,
    succeed,
)
from windlass.core.decisions.transition import ApplyResult, Status, Transition
from windlass.core.errors import StoreError
from windlass.core.event import Record
from windlass.core.job import retry_policy
from windlass.core.job.lease import DEFAULT_LEASE
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.context import STORE_RETRY_DELAY
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.loops.workspace_cleaner import WorkspaceCleaner
from windlass.worker.running_attempts import RunningAttempt, RunningAttempts, StopReason

log = logging.getLogger("windlass.worker")
BATCH_DELAY = 0.01  # seconds to wait for more outcomes
FULL_BATCH = 1000  # outcomes that are written without delay
MAX_BATCH = 2000  # outcomes in one write
_CLEANED_STATES = frozenset({State.SUCCEEDED, State.CANCELED})


class Settler:
    """Settled and abandoned attempts are dropped from `attempts`."""

    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        cleaner: WorkspaceCleaner,
        attempts: RunningAttempts,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._cleaner = cleaner
        self._attempts = attempts
        self._pending: list[RunningAttempt] = []
        self._has_pending = asyncio.Event()
        self._outages = OutageLog("Settling jobs")
        self._background: set[asyncio.Task[None]] = set()
        self.settled: dict[State, int] = {}

    async def run(self, no_backlog: asyncio.Event) -> None:
        """Write outcomes until cancelled; `no_backlog` is set while no job waits for a slot."""
        while True:
            await self._has_pending.wait()
            if not no_backlog.is_set() and len(self._pending) < FULL_BATCH:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(no_backlog.wait(), BATCH_DELAY)
            batch = self._pending[:MAX_BATCH]
            del self._pending[:MAX_BATCH]
            if not self._pending:
                self._has_pending.clear()
            await self._write(batch)

    def settle(self, attempt: RunningAttempt, outcome: Outcome) -> None:
        """Queue an outcome for writing. The lease is kept until the outcome is stored."""
        if attempt.stop_reason is StopReason.LOST:
            self._drop_lost([attempt])
            return
        context = attempt.context
        aborted = isinstance(outcome, Aborted) and _may_have_workspace(attempt)
        if aborted or (context is not None and context.flushing):
            self._run_in_background(self._enqueue_later(attempt, outcome, clean=aborted))
        else:
            self._enqueue(attempt, outcome)

    async def _enqueue_later(
        self, attempt: RunningAttempt, outcome: Outcome, *, clean: bool
    ) -> None:
        try:
            if clean:
                await self._remove_workspace_first(attempt)
            if attempt.context is not None:
                # Events that a running flush fails to store become part of the settle.
                await attempt.context.wait_flushed()
        finally:
            self._enqueue(attempt, outcome)

    def _enqueue(self, attempt: RunningAttempt, outcome: Outcome) -> None:
        context = attempt.context
        records = context.take() if context is not None else ()
        children: Sequence[NewJob] = context.children if context is not None else ()
        if type(outcome) is Succeeded:  # the common case, on a fast path
            attempt.transition = succeed(attempt.job, outcome, records, children)
        else:
            if context is not None and type(outcome) is Suspended:
                children = context.fan_out
            attempt.transition = self._build_transition(attempt.job, outcome, records, children)
        self._pending.append(attempt)
        if len(self._pending) == 1:
            self._has_pending.set()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run slow work in the background, so that no other attempt waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def finish(self, timeout: float) -> None:
        """Wait for background work. The workspace cleaner removes what is late."""
        self._outages.log_recovery()
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=timeout)
            for task in late:
                task.cancel()

    # -- writing

    async def _write(self, batch: Sequence[RunningAttempt]) -> None:
        """Write until the store accepts it; skip attempts that lose their lease meanwhile."""
        while batch := self._drop_lost(batch):
            try:
                results = await self._store.apply([attempt.transition for attempt in batch])  # type: ignore[misc]
            except StoreError as error:
                self._outages.failed(error, f"Settling {len(batch)} jobs")
                await asyncio.sleep(STORE_RETRY_DELAY)
                continue
            except Exception:
                log.exception("%d jobs could not be settled", len(batch))
                await self._write_one_by_one(batch)
                return
            if self._outages.started_at is not None:
                self._outages.succeeded()
            ended = [
                attempt
                for attempt, result in zip(batch, results, strict=True)
                if self._handle_result(attempt, result)
            ]
            self._attempts.forget(ended)
            return

    async def _write_one_by_one(self, batch: Sequence[RunningAttempt]) -> None:
        """Settle each attempt alone. One that cannot be settled waits for lease expiry."""
        if len(batch) == 1:
            self._attempts.forget(batch)
            return
        for attempt in batch:
            await self._write([attempt])

    def _drop_lost(self, batch: Sequence[RunningAttempt]) -> Sequence[RunningAttempt]:
        lost = [attempt for attempt in batch if attempt.stop_reason is StopReason.LOST]
        if not lost:
            return batch
        for attempt in lost:
            log.warning("job %s: lease expired; result discarded", attempt.job.id)
        self._attempts.forget(lost)
        return [attempt for attempt in batch if attempt.stop_reason is not StopReason.LOST]

    def _handle_result(self, attempt: RunningAttempt, result: ApplyResult) -> bool:
        """Return whether the attempt needs no further write."""
        state = result.state
        if result.status is Status.APPLIED and state is not None:
            self.settled[state] = self.settled.get(state, 0) + 1
            if state in _CLEANED_STATES and _may_have_workspace(attempt):
                self._run_in_background(self._remove_workspace(attempt.job))
        elif result.status is Status.REFUSED and result.error is not None and not attempt.refused:
            # The task's own transition is invalid: its attempt fails with that error.
            failed = Failed(failure=failure_from_error(result.error, self._codec))
            attempt.transition = self._build_transition(attempt.job, failed)
            attempt.refused = True
            self._pending.append(attempt)
            self._has_pending.set()
            return False
        elif result.status is Status.BUSY:
            # Another transaction holds the row: the other attempts need not wait.
            self._run_in_background(self._write([attempt]))
            return False
        else:
            log.warning("job %s: not settled, status %s", attempt.job.id, result.status)
        return True

    def _build_transition(
        self,
        job: JobRow,
        outcome: Outcome,
        records: Sequence[Record] = (),
        children: Sequence[NewJob] = (),
    ) -> Transition:
        transition = partial(
            settle, job, outcome, random=random.random, records=records, children=children
        )
        spec = self._tasks.get(job.task)
        try:
            return transition(backoff=spec.options.backoff if spec else None)
        except Exception:
            log.exception(
                "the backoff function of %s failed; using the stored policy of the job", job.task
            )
            return transition(backoff=retry_policy.storable_backoff(job.policy.backoff))

    # -- workspaces

    async def _remove_workspace_first(self, attempt: RunningAttempt) -> None:
        """Remove the workspace of a canceled job before the cancel is stored.

        After an accepted cancel, the job does not run again. A task that cancels itself must still
        hold its lease: the next attempt may already use the workspace.
        """
        job = attempt.job
        if attempt.stop_reason is StopReason.CANCEL or await self._extend_lease(job):
            for warning in await self._cleaner.remove(job):
                if attempt.context is not None:
                    attempt.context.warn(warning)

    async def _extend_lease(self, job: JobRow) -> bool:
        """Extend the lease; return whether it is still valid."""
        try:
            [result] = await self._store.extend([job.lease], job.lease_seconds or DEFAULT_LEASE)
        except StoreError:
            return False
        return not result.stale

    async def _remove_workspace(self, job: JobRow) -> None:
        for warning in await self._cleaner.remove(job):
            log.warning("%s", warning)  # a finished job accepts no more events


def _may_have_workspace(attempt: RunningAttempt) -> bool:
    """Whether this attempt or an earlier one may have a workspace. Saves disk access otherwise."""
    job, context = attempt.job, attempt.context
    used = context is not None and context.used_workspace
    return used or job.attempt > 1 or job.root_id is not None
