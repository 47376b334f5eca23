"""A store under test: it remembers what was asked for, tells when something happened, can kill."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Answer, Transition
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.row import JobRow, NewJob
from windlass.store import Saying, Store
from windlass.stores.wakeup import Signal
from windlass.testing.crash_points import SimulatedCrash
from windlass.testing.wrapped_store import WrappedStore

T = TypeVar("T")
Finish = Callable[[list[Enqueued]], Awaitable[list[Enqueued]]]
_BORN: ContextVar[Life | None] = ContextVar("born", default=None)  # whose handles are being made
_POINT = re.compile(r"(before|after)-(claim|record|settle|enqueue|step:.+)", re.DOTALL)


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a memory store, which never waits: from sync code, on any loop or none."""
    try:
        call.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    call.close()
    raise AssertionError("a memory store waited for something")


class Doom:
    """Where a worker is to die: the n-th time that it comes to the point."""

    def __init__(self, point: str, nth: int = 1) -> None:
        if not _POINT.fullmatch(point):
            raise InvalidArgumentError(
                f"{point!r} is no point to crash at; write before- or after-, then claim, record, "
                "settle, enqueue or step:NAME, such as 'after-step:voice' or 'before-settle'"
            )
        if nth < 1:
            raise InvalidArgumentError(f"nth is {nth}; the first time is 1")
        self.point = point
        self.left = nth
        self.passed: dict[str, None] = {}  # in order, each once

    def strikes(self, point: str) -> bool:
        self.passed.setdefault(point)
        if self.left > 0 and point == self.point:
            self.left -= 1
            return self.left == 0
        return False


class Life:
    """One worker's. When it is over, the store answers it no more."""

    def __init__(self, name: str, doom: Doom | None) -> None:
        self.name = name
        self.doom = doom
        self.dead = False
        self.held: set[Lease] = set()

    def come_to(self, *points: str) -> None:
        """Die at the first of them that is doomed; the dead come nowhere."""
        if self.dead or (self.doom is not None and any(map(self.doom.strikes, points))):
            self.dead = True
            raise SimulatedCrash


class Bench:
    """What the handles of one twin share."""

    def __init__(self) -> None:
        self.news = Signal()
        self.requests: dict[UUID, NewJob] = {}
        self.claimed = 0
        self.alive: dict[str, Life] = {}
        self.doom: Doom | None = None
        self.finish: Finish | None = None  # inline: what an enqueue waits for

    @contextmanager
    def living(self, life: Life) -> Iterator[None]:
        self.alive[life.name] = life
        try:
            yield
        finally:
            del self.alive[life.name]
            self.news.notify()

    @contextmanager
    def bearing(self, life: Life) -> Iterator[None]:
        """The handles that are made in the block are this worker's own."""
        token = _BORN.set(life)
        try:
            yield
        finally:
            _BORN.reset(token)

    @property
    def doomed(self) -> Life | None:
        """Whoever enqueues while a doomed worker runs is one of its tasks."""
        return next((life for life in list(self.alive.values()) if life.doom is not None), None)


class BenchStore(WrappedStore):
    """A handle of the test's own, or (with `life`) of one worker."""

    def __init__(self, store: Store, bench: Bench, life: Life | None = None) -> None:
        super().__init__(store)
        self.bench = bench
        self._life = life

    def wrap(self, store: Store) -> BenchStore:
        return BenchStore(store, self.bench, self._life or _BORN.get())

    async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if self._life is None or verb == "close":  # the system closes what a dead process held
            return await call()
        self._life.come_to()
        answer = await call()
        self._life.come_to()  # it may have died elsewhere meanwhile
        return answer

    def _come_to(self, *points: str, life: Life | None = None) -> None:
        life = life or self._life
        if life is not None:
            try:
                life.come_to(*points)
            except SimulatedCrash:
                self.bench.news.notify()
                raise

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        bench = self.bench
        self._come_to("before-enqueue", life=bench.doomed)
        bench.requests |= {new.id: new for new in jobs}
        answers = await super().enqueue(jobs, together=together)
        self._come_to("after-enqueue", life=bench.doomed)
        bench.news.notify()
        return answers if bench.finish is None else await bench.finish(answers)

    async def claim(self, claim: Claim) -> list[JobRow]:
        self._come_to("before-claim")
        rows = await super().claim(claim)
        self.bench.claimed += len(rows)
        if self._life is not None:
            self._life.held |= {row.lease for row in rows}
        if rows:
            self._come_to("after-claim")
        self.bench.news.notify()
        return rows

    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        said = [record for saying in sayings for record in saying.records]
        what = ["record", *(f"step:{r.step}" for r in said if r.checkpoint is not None)]
        self._come_to(*(f"before-{point}" for point in what))
        answers = await super().record(sayings)
        self._come_to(*(f"after-{point}" for point in what))
        return answers

    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        settled = {
            Lease(wish.job_id, wish.fence, wish.token)
            for wish in transitions
            if wish.trigger.settles and wish.token is not None
        }
        if settled:
            self._come_to("before-settle")
        children = [child for wish in transitions for child in wish.children]
        self.bench.requests |= {child.id: child for child in children}
        answers = await super().apply(transitions)
        if settled:
            self._come_to("after-settle")
        if self._life is not None:
            self._life.held -= settled
        self.bench.news.notify()
        return answers
