"""Store wrapper of a twin: records requests, signals changes and simulates worker crashes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Transition
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.store import AttemptRecords, Store
from windlass.stores.wakeup import Wakeup
from windlass.testing.crashing_store import SimulatedCrash
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
Finish = Callable[[list[EnqueueResult]], Awaitable[list[EnqueueResult]]]
_OWNER: ContextVar[SimulatedWorker | None] = ContextVar("owner", default=None)
_POINT = re.compile(r"(before|after)-(claim|record|settle|enqueue|step:.+)", re.DOTALL)


def run_immediate(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a memory store call from sync code, on any event loop or none.

    A memory store never waits, so one step of the coroutine completes it.
    """
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise AssertionError("a memory store waited for something")


class CrashTrigger:
    """Crashes a worker the n-th time that it reaches a crash point."""

    def __init__(self, point: str, nth: int = 1) -> None:
        if not _POINT.fullmatch(point):
            raise InvalidArgumentError(
                f"{point!r} is not a crash point; use before- or after- with claim, record, "
                "settle, enqueue or step:NAME, for example 'after-step:voice' or 'before-settle'"
            )
        if nth < 1:
            raise InvalidArgumentError(f"nth must be at least 1, not {nth}")
        self.point = point
        self.remaining = nth
        self.reached: dict[str, None] = {}  # an ordered set

    def fires(self, point: str) -> bool:
        self.reached.setdefault(point)
        if self.remaining > 0 and point == self.point:
            self.remaining -= 1
            return self.remaining == 0
        return False


class SimulatedWorker:
    """One worker of a twin. After its crash, all its store calls raise SimulatedCrash."""

    def __init__(self, name: str, trigger: CrashTrigger | None) -> None:
        self.name = name
        self.trigger = trigger
        self.crashed = False
        self.leases: set[Lease] = set()

    def reach(self, *points: str) -> None:
        """Raise SimulatedCrash if the trigger fires at one of the points, or has fired before."""
        if self.crashed or (self.trigger is not None and any(map(self.trigger.fires, points))):
            self.crashed = True
            raise SimulatedCrash


class TwinState:
    """State that all store handles of one twin share."""

    def __init__(self) -> None:
        self.changes = Wakeup()
        self.requests: dict[UUID, NewJob] = {}
        self.claimed = 0
        self.workers: dict[str, SimulatedWorker] = {}
        self.trigger: CrashTrigger | None = None
        self.finish: Finish | None = None  # inline mode: runs the jobs before enqueue returns

    @contextmanager
    def registered(self, worker: SimulatedWorker) -> Iterator[None]:
        self.workers[worker.name] = worker
        try:
            yield
        finally:
            del self.workers[worker.name]
            self.changes.notify()

    @contextmanager
    def owning_handles(self, worker: SimulatedWorker) -> Iterator[None]:
        """Assign store handles that are created in the block to this worker."""
        token = _OWNER.set(worker)
        try:
            yield
        finally:
            _OWNER.reset(token)

    @property
    def crashing_worker(self) -> SimulatedWorker | None:
        """Return the running worker that has a crash trigger.

        Enqueues during its run come from its own tasks.
        """
        workers = list(self.workers.values())
        return next((worker for worker in workers if worker.trigger is not None), None)


class SpyStore(WrappedStore):
    """A store handle of the test itself or, with `worker`, of one simulated worker."""

    def __init__(
        self, store: Store, state: TwinState, worker: SimulatedWorker | None = None
    ) -> None:
        super().__init__(store)
        self.state = state
        self._worker = worker

    def wrap(self, store: Store) -> SpyStore:
        return SpyStore(store, self.state, self._worker or _OWNER.get())

    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._worker is None or method == "close":  # a crashed process closes its handles, too
            return await call()
        self._worker.reach()
        result = await call()
        self._worker.reach()  # it may have crashed in another call meanwhile
        return result

    def _reach(self, *points: str, worker: SimulatedWorker | None = None) -> None:
        worker = worker or self._worker
        if worker is not None:
            try:
                worker.reach(*points)
            except SimulatedCrash:
                self.state.changes.notify()
                raise

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        state = self.state
        self._reach("before-enqueue", worker=state.crashing_worker)
        state.requests |= {new.id: new for new in jobs}
        results = await super().enqueue(jobs, atomic=atomic)
        self._reach("after-enqueue", worker=state.crashing_worker)
        state.changes.notify()
        return results if state.finish is None else await state.finish(results)

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._reach("before-claim")
        rows = await super().claim(claim)
        self.state.claimed += len(rows)
        if self._worker is not None:
            self._worker.leases |= {row.lease for row in rows}
        if rows:
            self._reach("after-claim")
        self.state.changes.notify()
        return rows

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        records = [record for batch in attempt_records for record in batch.records]
        points = ["record", *(f"step:{r.step}" for r in records if r.checkpoint is not None)]
        self._reach(*(f"before-{point}" for point in points))
        results = await super().record(attempt_records)
        self._reach(*(f"after-{point}" for point in points))
        return results

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        transitions = [request for request in requests if isinstance(request, Transition)]
        settled = {
            Lease(transition.job_id, transition.fence, transition.token)
            for transition in transitions
            if transition.trigger.settles and transition.token is not None
        }
        if settled:
            self._reach("before-settle")
        children = [child for transition in transitions for child in transition.children]
        self.state.requests |= {child.id: child for child in children}
        results = await super().apply(requests)
        if settled:
            self._reach("after-settle")
        if self._worker is not None:
            self._worker.leases -= settled
        self.state.changes.notify()
        return results
