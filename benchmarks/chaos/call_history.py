"""Store wrapper that records calls and results per job, for `checks/linearizability`.

On the client side of the network it records received responses. On the store side it records every
result, also of late requests and of crashed clients. The simulation uses it on the store side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from benchmarks.chaos.checks.linearizability import Call, Kind, explain, shown
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, CancelRequest, Transition
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import RESCUING, SETTLING, State, Trigger
from windlass.store import AttemptRecords, Store
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")


@dataclass
class CallHistory:
    """The calls of all clients. All clients share one rising `clock`."""

    clock: Callable[[], float]
    calls: dict[UUID, list[Call]] = field(default_factory=lambda: defaultdict(list))
    lost_claims: list[Call] = field(default_factory=list)  # claims without a received response

    def explain_violation(self, job: UUID) -> str | None:
        """Return None if the results of all calls on the job are linearizable."""
        return explain([*self.calls[job], *self.lost_claims])


class HistoryRecordingStore(WrappedStore):
    """Passes every call on. A call that raises has no result and may have had its effect."""

    def __init__(self, store: Store, history: CallHistory, by: str = "") -> None:
        super().__init__(store)
        self._history = history
        self._by = by

    def wrap(self, store: Store) -> HistoryRecordingStore:
        return HistoryRecordingStore(store, self._history, self._by)

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await call()

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        requested = [(job.id, self._call(Kind.ENQUEUE)) for job in jobs]
        answers = await self._note(requested, self.store.enqueue(jobs, atomic=atomic))
        for (job, call), answer in zip(requested, answers, strict=True):
            self._record_result(job, call, "applied" if answer.accepted else "refused")
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
            self._record_result(row.id, call._replace(fence=row.fence), "applied", "running")
        return rows

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        requested = [
            (
                lease.job_id,
                self._call(Kind.EXTEND, lease.fence, lease.token)._replace(seconds=seconds),
            )
            for lease in leases
        ]
        answers = await self._note(requested, self.store.extend(leases, seconds))
        for (job, call), answer in zip(requested, answers, strict=True):
            reported = call._replace(cancel=answer.cancel_requested)
            self._record_result(job, reported, "stale" if answer.stale else "applied")
        return answers

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        requested = [(request.job_id, self._request(request)) for request in requests]
        creation = self._call(Kind.ENQUEUE)
        children = [(child.id, creation) for request in requests for child in _children(request)]
        answers = await self._note([*requested, *children], self.store.apply(requests))
        for (job, call), request, answer in zip(requested, requests, answers, strict=True):
            self._record_result(job, call, answer.status, answer.state)
            if answer.applied and answer.state is State.SUCCEEDED:
                for child in _children(request):
                    self._record_result(child.id, creation, "applied")
        return answers

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        leases = [entry.lease for entry in attempt_records]
        requested = [
            (lease.job_id, self._call(Kind.RECORD, lease.fence, lease.token)) for lease in leases
        ]
        answers = await self._note(requested, self.store.record(attempt_records))
        for (job, call), answer in zip(requested, answers, strict=True):
            self._record_result(job, call, answer.status, answer.state)
        return answers

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        call = self._call(Kind.READ)
        rows = await self.store.get(ids, owner)
        if owner is None:  # with an owner, a missing row may exist
            for job, row in zip(ids, rows, strict=True):
                self._record_result(job, call, "seen", _shown(row))
        return rows

    # -- conversion of calls

    def _call(
        self, kind: Kind, fence: int = 0, token: UUID | None = None, trigger: str = ""
    ) -> Call:
        now = self._history.clock()
        return Call(kind=kind, began=now, by=self._by, fence=fence, token=token, trigger=trigger)

    def _request(self, request: ApplyRequest) -> Call:
        if isinstance(request, Transition):
            return self._transition(request)
        if isinstance(request, CancelRequest):
            return self._call(Kind.CANCEL)
        raise NotImplementedError("call histories do not support signals")

    def _transition(self, transition: Transition) -> Call:
        if transition.trigger in SETTLING:
            kind = Kind.SETTLE
        elif transition.trigger in RESCUING:
            kind = Kind.RESCUE
        elif transition.trigger is Trigger.PROMOTE:
            kind = Kind.PROMOTE
        else:
            raise NotImplementedError(f"call histories do not support {transition.trigger}")
        call = self._call(kind, transition.fence, transition.token, transition.trigger.value)
        return call._replace(crash=True) if transition.crash else call

    async def _note(self, requested: Sequence[tuple[UUID, Call]], answer: Awaitable[T]) -> T:
        try:
            return await answer
        except BaseException:
            for job, call in requested:
                self._history.calls[job].append(call)
            raise

    def _record_result(self, job: UUID, call: Call, answer: str, state: str | None = None) -> None:
        ended = self._history.clock()
        reported = None if state is None else str(state)
        done = call._replace(ended=ended, answer=str(answer), state=reported)
        self._history.calls[job].append(done)


def _children(request: ApplyRequest) -> Sequence[NewJob]:
    return request.children if isinstance(request, Transition) else ()


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
