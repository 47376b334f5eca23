"""A store that writes down what it was asked and answered, job by job, for `linear` to judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import UUID

from benchmarks.chaos.linear import Call, Kind, explain
from windlass.core.enqueue import Enqueued
from windlass.core.job import JobRow, NewJob
from windlass.core.lease import DEFAULT_LEASE, Claim, Extended, Lease
from windlass.core.state import RESCUING, SETTLING, Trigger
from windlass.core.transition import Answer, CancelRequest, Transition
from windlass.store import Store
from windlass.testing.wrapping import WrappedStore

T = TypeVar("T")


@dataclass
class History:
    """The calls of all clients. `clock` must be the same for all of them, and rise."""

    clock: Callable[[], float]
    calls: dict[UUID, list[Call]] = field(default_factory=lambda: defaultdict(list))
    lost_claims: list[Call] = field(default_factory=list)  # nobody knows of which jobs

    def judge(self, job: UUID, claimed_by: dict[int, str]) -> str | None:
        """None if all that was heard of the job can have happened.

        `claimed_by` says who held each fence, as the store tells in the end. A claim whose answer
        was lost is taken into account if it was repeated, or if a fence is missing from what was
        heard: then it was that worker's.
        """
        claims = [call for call in self.calls[job] if call.kind is Kind.CLAIM]
        heard, tokens = {call.fence for call in claims}, {call.token for call in claims}
        missing = {by for fence, by in claimed_by.items() if fence not in heard}
        lost = [it for it in self.lost_claims if it.by in missing or it.token in tokens]
        return explain([*self.calls[job], *lost])


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

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        asked = [(job.id, self._call(Kind.ENQUEUE)) for job in jobs]
        answers = await self._note(asked, self.store.enqueue(jobs))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, "applied" if answer.accepted else "refused")
        return answers

    async def claim(self, claim: Claim) -> list[JobRow]:
        seconds = claim.lease or DEFAULT_LEASE
        call = self._call(Kind.CLAIM, token=claim.token, by=claim.worker, seconds=seconds)
        try:
            rows = await self.store.claim(claim)
        except BaseException:
            self._history.lost_claims.append(call)
            raise
        for row in rows:
            self._heard(row.id, replace(call, fence=row.fence), "applied", "running")
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        asked = [(lease.job_id, self._of(lease, seconds)) for lease in leases]
        answers = await self._note(asked, self.store.extend(leases, seconds))
        for (job, call), answer in zip(asked, answers, strict=True):
            told = replace(call, cancel=answer.cancel_requested)
            self._heard(job, told, "stale" if answer.stale else "applied")
        return answers

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        asked = [(wish.job_id, self._wish(wish)) for wish in transitions]
        for child in (child for wish in transitions for child in wish.children):
            self._history.calls[child.id].append(self._call(Kind.ENQUEUE))
        answers = await self._note(asked, self.store.apply(transitions))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, answer.status, answer.state)
        return answers

    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        asked = [(request.job_id, self._call(Kind.CANCEL)) for request in requests]
        answers = await self._note(asked, self.store.cancel(requests))
        for (job, call), answer in zip(asked, answers, strict=True):
            self._heard(job, call, answer.status, answer.state)
        return answers

    # -- how a call becomes a line

    def _call(self, kind: Kind, **more: object) -> Call:
        return Call(**{"kind": kind, "began": self._history.clock(), "by": self._by, **more})  # type: ignore[arg-type]

    def _of(self, lease: Lease, seconds: float) -> Call:
        return self._call(Kind.EXTEND, fence=lease.fence, token=lease.token, seconds=seconds)

    def _wish(self, wish: Transition) -> Call:
        if wish.trigger in SETTLING:
            kind = Kind.SETTLE
        elif wish.trigger in RESCUING:
            kind = Kind.RESCUE
        elif wish.trigger is Trigger.PROMOTE:
            kind = Kind.PROMOTE
        else:
            raise NotImplementedError(f"histories do not tell of {wish.trigger}")
        return self._call(kind, fence=wish.fence, token=wish.token, word=str(wish.trigger))

    async def _note(self, asked: Sequence[tuple[UUID, Call]], answer: Awaitable[T]) -> T:
        try:
            return await answer
        except BaseException:
            for job, call in asked:
                self._history.calls[job].append(call)
            raise

    def _heard(self, job: UUID, call: Call, answer: str, state: str | None = None) -> None:
        heard = replace(call, ended=self._history.clock(), answer=str(answer))
        self._history.calls[job].append(replace(heard, state=None if state is None else str(state)))
