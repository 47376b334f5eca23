"""A store that writes down what it was asked and answered, job by job, for `linear` to judge.

On the client's side of a line it knows what was heard. On the store's side it knows every answer,
also those to requests that came late and to senders who died: that is where the simulation has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from benchmarks.chaos.checks.linearizability import Call, Kind, explain, shown
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Answer, CancelRequest, Transition
from windlass.core.job.lease import DEFAULT_LEASE, Claim, Extended, Lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import RESCUING, SETTLING, State, Trigger
from windlass.store import Saying, Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


@dataclass
class History:
    """The calls of all clients. `clock` must be the same for all of them, and rise."""

    clock: Callable[[], float]
    calls: dict[UUID, list[Call]] = field(default_factory=lambda: defaultdict(list))
    lost_claims: list[Call] = field(default_factory=list)  # nobody knows of which jobs

    def judge(self, job: UUID) -> str | None:
        """None if all that was answered about the job can have happened."""
        return explain([*self.calls[job], *self.lost_claims])


class Recorded(WrappedStore):
    """Passes everything on. What raises was not answered, and may have happened or not."""

    def __init__(self, store: Store, history: History, by: str = "") -> None:
        super().__init__(store)
        self._history = history
        self._by = by

    def wrap(self, store: Store) -> Recorded:
        return Recorded(store, self._history, self._by)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await call()

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        asked = [(job.id, self._call(Kind.ENQUEUE)) for job in jobs]
        answers = await self._note(asked, self.store.enqueue(jobs, together=together))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, "applied" if answer.accepted else "refused")
        return answers

    async def claim(self, claim: Claim) -> list[JobRow]:
        seconds = claim.lease or DEFAULT_LEASE
        call = self._call(Kind.CLAIM, token=claim.token)._replace(by=claim.worker, seconds=seconds)
        try:
            rows = await self.store.claim(claim)
        except BaseException:
            self._history.lost_claims.append(call)
            raise
        for row in rows:
            self._heard(row.id, call._replace(fence=row.fence), "applied", "running")
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        asked = [
            (it.job_id, self._call(Kind.EXTEND, it.fence, it.token)._replace(seconds=seconds))
            for it in leases
        ]
        answers = await self._note(asked, self.store.extend(leases, seconds))
        for (job, call), answer in zip(asked, answers, strict=True):
            told = call._replace(cancel=answer.cancel_requested)
            self._heard(job, told, "stale" if answer.stale else "applied")
        return answers

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        asked = [(wish.job_id, self._wish(wish)) for wish in transitions]
        born = self._call(Kind.ENQUEUE)
        children = [(child.id, born) for wish in transitions for child in wish.children]
        answers = await self._note([*asked, *children], self.store.apply(transitions))
        for (job, call), wish, answer in zip(asked, transitions, answers, strict=True):
            self._heard(job, call, answer.status, answer.state)
            if answer.applied and answer.state is State.SUCCEEDED:
                for child in wish.children:
                    self._heard(child.id, born, "applied")
        return answers

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        leases = [saying.lease for saying in sayings]
        asked = [(it.job_id, self._call(Kind.RECORD, it.fence, it.token)) for it in leases]
        answers = await self._note(asked, self.store.record(sayings))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, answer.status, answer.state)
        return answers

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        asked = [(request.job_id, self._call(Kind.CANCEL)) for request in requests]
        answers = await self._note(asked, self.store.cancel(requests))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, answer.status, answer.state)
        return answers

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        call = self._call(Kind.READ)
        rows = await self.store.get(ids, owner)
        if owner is None:  # else a row that is not shown may be there all the same
            for job, row in zip(ids, rows, strict=True):
                self._heard(job, call, "seen", _shown(row))
        return rows

    # -- how a call becomes a line

    def _call(self, kind: Kind, fence: int = 0, token: UUID | None = None, word: str = "") -> Call:
        now = self._history.clock()
        return Call(kind=kind, began=now, by=self._by, fence=fence, token=token, word=word)

    def _wish(self, wish: Transition) -> Call:
        if wish.trigger in SETTLING:
            kind = Kind.SETTLE
        elif wish.trigger in RESCUING:
            kind = Kind.RESCUE
        elif wish.trigger is Trigger.PROMOTE:
            kind = Kind.PROMOTE
        else:
            raise NotImplementedError(f"histories do not tell of {wish.trigger}")
        call = self._call(kind, wish.fence, wish.token, wish.trigger.value)
        return call._replace(crash=True) if wish.crash else call

    async def _note(self, asked: Sequence[tuple[UUID, Call]], answer: Awaitable[T]) -> T:
        try:
            return await answer
        except BaseException:
            for job, call in asked:
                self._history.calls[job].append(call)
            raise

    def _heard(self, job: UUID, call: Call, answer: str, state: str | None = None) -> None:
        ended = self._history.clock()
        told = None if state is None else str(state)
        self._history.calls[job].append(call._replace(ended=ended, answer=str(answer), state=told))


def _shown(row: JobRow | None) -> str:
    if row is None:
        return shown(state="none", fence=0, attempt=0, errors=0, crashes=0, cancel=False)
    return shown(
        state=str(row.state),
        fence=row.fence,
        attempt=row.attempt,
        errors=row.retry_count,
        crashes=row.crash_count,
        cancel=row.cancel_requested,
    )
