"""Settles how attempts ended, and has the workspaces removed that are no longer needed.

Guarantees: a settle that the store cannot take is repeated until it can or the lease is lost; a
wish that can never be is how the attempt failed. The workspace of an attempt that obeyed a cancel
goes before its job is canceled; that of a success goes after, when it cannot be needed again. A
crash leaves the lease to run out and the directories to the sweep for orphans.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial

from windlass.core import retry
from windlass.core.codec import Codec
from windlass.core.errors import StoreError
from windlass.core.event import Record
from windlass.core.job import JobRow, NewJob
from windlass.core.lease import DEFAULT_LEASE
from windlass.core.outcome import Aborted, Failed, Outcome, settle
from windlass.core.state import State
from windlass.core.transition import Status, Transition
from windlass.store import Store
from windlass.task import Registry
from windlass.worker.cleaner import Cleaner
from windlass.worker.context import RETRY_STORE, Context
from windlass.worker.executor import describe

log = logging.getLogger("windlass.worker")
_CLEANED = frozenset({State.SUCCEEDED, State.CANCELED})


class Settler:
    def __init__(self, store: Store, tasks: Registry, codec: Codec, cleaner: Cleaner) -> None:
        self._store = store
        self._tasks = tasks
        self._codec = codec
        self._cleaner = cleaner
        self.settled: dict[State, int] = {}

    async def settle(
        self, context: Context, outcome: Outcome, lost: Callable[[], bool], *, canceled: bool
    ) -> None:
        """`lost` tells whether to give up on a store that does not answer.

        Of a canceled job the workspace goes first. After an accepted cancel nobody will run it
        again; a task that cancels itself must still hold its lease, or the next attempt may be at
        work there.
        """
        job = context.job
        aborted = isinstance(outcome, Aborted) and _may_have_workspace(context)
        if aborted and (canceled or await self._still_held(job)):
            for warning in await self._cleaner.remove(job):
                context.warn(warning)
        wish = self._wish(job, outcome, context.take(), context.children)
        refused = False
        while True:
            try:
                [answer] = await self._store.apply([wish])
            except StoreError as error:
                if lost():
                    return
                log.warning("settling job %s failed, trying again: %s", job.id, error)
                await asyncio.sleep(RETRY_STORE)
                continue
            if answer.status is Status.REFUSED and answer.error is not None and not refused:
                refused = True  # what the task wants cannot be: that is how its attempt failed
                wish = self._wish(job, Failed(failure=describe(answer.error, self._codec)))
                continue
            if answer.applied and answer.state is not None:
                await self._ended(context, answer.state)
            else:
                log.warning("job %s: the settle was answered %s", job.id, answer.status)
            return

    async def _still_held(self, job: JobRow) -> bool:
        """Whether the lease is ours, and from now on for its whole length."""
        try:
            [answer] = await self._store.extend([job.lease], job.lease_seconds or DEFAULT_LEASE)
        except StoreError:
            return False
        return not answer.stale

    async def _ended(self, context: Context, state: State) -> None:
        self.settled[state] = self.settled.get(state, 0) + 1
        if state in _CLEANED and _may_have_workspace(context):
            for warning in await self._cleaner.remove(context.job):
                log.warning("%s", warning)  # the log of a job that ended is closed

    def _wish(
        self,
        job: JobRow,
        outcome: Outcome,
        records: Sequence[Record] = (),
        children: Sequence[NewJob] = (),
    ) -> Transition:
        spec = self._tasks.get(job.task)
        ends = partial(
            settle, job, outcome, random=random.random, records=records, children=children
        )
        try:
            return ends(backoff=spec.options.backoff if spec else None)
        except Exception:
            log.exception("the backoff of %s failed; following what the job's row says", job.task)
            return ends(backoff=retry.stored(job.policy.backoff))


def _may_have_workspace(context: Context) -> bool:
    """Whether this attempt made one, or an earlier one might have. Others cost no look at disk."""
    job = context.job
    return context.used_workspace or job.attempt > 1 or job.lineage != job.id
