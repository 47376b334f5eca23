"""Stores how attempts ended, many in one write, and has workspaces removed that are needed no more.

Waits for: the first outcome, then (while jobs wait for a slot, so that more outcomes are about to
come) for at most `WINDOW`; what ends while a write is under way goes with the next. Guarantees: a
settle that the store cannot take is repeated until it can or the lease is lost; a wish that can
never be is how the attempt failed. The workspace of an attempt that obeyed a cancel goes before its
job is canceled; that of a success goes after, when it cannot be needed again. Stops: when told,
after its last write. A crash leaves the lease to run out and the directories to the sweep for
orphans.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from windlass.core.codec import Codec
from windlass.core.decisions import retry
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Succeeded,
    Suspended,
    settle,
    succeed,
)
from windlass.core.decisions.transition import Answer, Status, Transition
from windlass.core.errors import StoreError
from windlass.core.event import Record
from windlass.core.job.lease import DEFAULT_LEASE
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.attempt import Attempt, Why
from windlass.worker.context import RETRY_STORE
from windlass.worker.executor import describe
from windlass.worker.loops.cleaner import Cleaner
from windlass.worker.loops.outage_log import Trouble

log = logging.getLogger("windlass.worker")
WINDOW = 0.01  # seconds
ENOUGH = 1000  # outcomes that do not wait for more
MAX_BATCH = 2000  # in one write: the longer a write takes, the more have come meanwhile
_CLEANED = frozenset({State.SUCCEEDED, State.CANCELED})


class Settler:
    """`lull` is set while no job waits for a slot; `on_settled` is told of those done with."""

    def __init__(
        self,
        store: Store,
        tasks: Registry,
        codec: Codec,
        cleaner: Cleaner,
        on_settled: Callable[[Sequence[Attempt]], None],
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._cleaner = cleaner
        self._on_settled = on_settled
        self._pending: list[Attempt] = []
        self._some = asyncio.Event()
        self._trouble = Trouble("settling")
        self._beside: set[asyncio.Task[None]] = set()
        self.settled: dict[State, int] = {}

    async def run(self, lull: asyncio.Event) -> None:
        while True:
            await self._some.wait()
            if not lull.is_set() and len(self._pending) < ENOUGH:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lull.wait(), WINDOW)
            batch = self._pending[:MAX_BATCH]
            del self._pending[:MAX_BATCH]
            if not self._pending:
                self._some.clear()
            await self._write(batch)

    def settle(self, attempt: Attempt, outcome: Outcome) -> None:
        """Have it stored. Returns at once; the lease must be kept until `on_settled` says so."""
        aborted = isinstance(outcome, Aborted) and _may_have_workspace(attempt)
        if aborted or (attempt.context is not None and attempt.context.flushing):
            self._do_beside(self._add_later(attempt, outcome, clean=aborted))
        else:
            self._add(attempt, outcome)

    async def _add_later(self, attempt: Attempt, outcome: Outcome, *, clean: bool) -> None:
        try:
            if clean:
                await self._clean_first(attempt)
            if attempt.context is not None:  # what a write under way cannot store goes along
                await attempt.context.quiet()
        finally:
            self._add(attempt, outcome)

    def _add(self, attempt: Attempt, outcome: Outcome) -> None:
        context = attempt.context
        records = context.take() if context is not None else ()
        children = context.children if context is not None else ()
        if type(outcome) is Succeeded:  # nearly always: by the shortest way
            attempt.wish = succeed(attempt.job, outcome, records, children)
        else:
            if context is not None and type(outcome) is Suspended:
                children = context.fan_out
            attempt.wish = self._wish(attempt.job, outcome, records, children)
        self._pending.append(attempt)
        if len(self._pending) == 1:
            self._some.set()

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """What takes its time keeps no other attempt waiting."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def finish(self, timeout: float) -> None:
        """Wait for what is done beside; what takes longer is left to the sweep for orphans."""
        self._trouble.done()
        if self._beside:
            _, late = await asyncio.wait(self._beside, timeout=timeout)
            for task in late:
                task.cancel()

    # -- writing

    async def _write(self, batch: Sequence[Attempt]) -> None:
        """Until the store has taken it; what is lost in the meantime is left out."""
        while batch := self._still_ours(batch):
            try:
                answers = await self._store.apply([attempt.wish for attempt in batch])  # type: ignore[misc]
            except StoreError as error:
                self._trouble.met(error, f"settling {len(batch)} jobs")
                await asyncio.sleep(RETRY_STORE)
                continue
            except Exception:
                log.exception("%d jobs could not be settled", len(batch))
                await self._one_by_one(batch)
                return
            self._trouble.over()
            ended = [
                attempt
                for attempt, answer in zip(batch, answers, strict=True)
                if self._answered(attempt, answer)
            ]
            self._on_settled(ended)
            return

    async def _one_by_one(self, batch: Sequence[Attempt]) -> None:
        """Whatever is wrong with one of them, the others are settled; it is left to its lease."""
        if len(batch) == 1:
            self._on_settled(batch)
            return
        for attempt in batch:
            await self._write([attempt])

    def _still_ours(self, batch: Sequence[Attempt]) -> Sequence[Attempt]:
        lost = [attempt for attempt in batch if attempt.why is Why.LOST]
        if not lost:
            return batch
        for attempt in lost:
            log.warning("job %s is another worker's now; its result is dropped", attempt.job.id)
        self._on_settled(lost)
        return [attempt for attempt in batch if attempt.why is not Why.LOST]

    def _answered(self, attempt: Attempt, answer: Answer) -> bool:
        """Whether it is done with."""
        state = answer.state
        if answer.status is Status.APPLIED and state is not None:
            self.settled[state] = self.settled.get(state, 0) + 1
            if state in _CLEANED and _may_have_workspace(attempt):
                self._do_beside(self._clean(attempt.job))
        elif answer.status is Status.REFUSED and answer.error is not None and not attempt.refused:
            # What the task wants cannot be: that is how its attempt failed.
            failed = Failed(failure=describe(answer.error, self._codec))
            attempt.wish = self._wish(attempt.job, failed)
            attempt.refused = True
            self._pending.append(attempt)
            self._some.set()
            return False
        elif answer.status is Status.BUSY:  # a transaction has it: the others need not wait
            self._do_beside(self._write([attempt]))
            return False
        else:
            log.warning("job %s: the settle was answered %s", attempt.job.id, answer.status)
        return True

    def _wish(
        self,
        job: JobRow,
        outcome: Outcome,
        records: Sequence[Record] = (),
        children: Sequence[NewJob] = (),
    ) -> Transition:
        ends = partial(
            settle, job, outcome, random=random.random, records=records, children=children
        )
        spec = self._tasks.get(job.task)
        try:
            return ends(backoff=spec.options.backoff if spec else None)
        except Exception:
            log.exception("the backoff of %s failed; following what the job's row says", job.task)
            return ends(backoff=retry.stored(job.policy.backoff))

    # -- workspaces

    async def _clean_first(self, attempt: Attempt) -> None:
        """Of a canceled job the workspace goes first.

        After an accepted cancel nobody will run it again; a task that cancels itself must still
        hold its lease, or the next attempt may be at work there.
        """
        job = attempt.job
        if attempt.why is Why.CANCEL or await self._still_held(job):
            for warning in await self._cleaner.remove(job):
                if attempt.context is not None:
                    attempt.context.warn(warning)

    async def _still_held(self, job: JobRow) -> bool:
        """Whether the lease is ours, and from now on for its whole length."""
        try:
            [answer] = await self._store.extend([job.lease], job.lease_seconds or DEFAULT_LEASE)
        except StoreError:
            return False
        return not answer.stale

    async def _clean(self, job: JobRow) -> None:
        for warning in await self._cleaner.remove(job):
            log.warning("%s", warning)  # the log of a job that ended is closed


def _may_have_workspace(attempt: Attempt) -> bool:
    """Whether this attempt made one, or an earlier one might have. Others cost no look at disk."""
    job, context = attempt.job, attempt.context
    used = context is not None and context.used_workspace
    return used or job.attempt > 1 or job.root_id is not None
