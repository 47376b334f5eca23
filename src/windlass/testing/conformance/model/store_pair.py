"""Two stores under one clock, and the look at every job after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine, invariant

from windlass.core.errors import StoreUnavailableError
from windlass.core.query.job_query import Query
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.model import store_dump
from windlass.testing.conformance.model.invariants import Watch
from windlass.testing.conformance.model.store_dump import ALL

T = TypeVar("T")
Call = Callable[[Store], Coroutine[Any, Any, T]]
Open = Callable[[], Store]
MakeStore = Callable[[VirtualClock], Open]
"""Called once for each history. Answers how to open that history's data, again and again."""

_PATIENCE = 50  # tries of a call that the store could not answer


class Pair(RuleBasedStateMachine):
    """`reference` is the memory store, `subject` the one under test, on one event loop."""

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.reference = MemoryStore(clock=self.clock)
        self.watch = Watch()
        self._made = 0
        self._turn = 0
        self._sound = True
        self._open = make_store(self.clock)
        self._runner = asyncio.Runner()
        self.other: Store | None = None
        self.subject = self._open()
        self.run(store_dump.migrate(self.subject))
        able = self.subject.capabilities
        self.in_line = able.fifo and able.priority_classes is None

    def teardown(self) -> None:
        try:
            if self._sound:  # else this would hide what was found
                self.run(self._look(self.watch.rows))
        finally:
            with self._runner as runner:
                for store in (self.subject, self.other):
                    if store is not None:
                        runner.run(store_dump.close(store))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except BaseException:
            self._sound = False
            raise

    def reopen(self) -> None:
        self.run(store_dump.close(self.subject))
        self.subject = self._open()

    def uuid(self) -> UUID:
        """The same ids in every run of one history."""
        self._made += 1
        return UUID(int=(START // 1000 << 80) | (7 << 76) | (2 << 62) | self._made)

    def both(self, call: Call[T]) -> T:
        """Make the call to both stores; the answers are alike. Answers the reference's."""
        return self.run(self.both_of(call))

    async def both_of(self, call: Call[T]) -> T:
        expected = await call(self.reference)
        answer = await self.insist(call)
        assert store_dump.alike(answer) == store_dump.alike(expected)
        return expected

    async def insist(self, call: Call[T]) -> T:
        """The subject's answer; one that was lost is asked for again."""
        for _ in range(_PATIENCE):
            try:
                return await call(self.subject)
            except StoreUnavailableError:
                continue
        return await call(self.subject)

    @invariant()
    def every_job_is_as_it_should_be(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        rows = await store_dump.find(self.subject, Query(limit=ALL))
        expected = await store_dump.find(self.reference, Query(limit=ALL))
        assert store_dump.alike(rows) == store_dump.alike(expected)
        if self.in_line:
            assert store_dump.line(rows) == store_dump.line(expected)
        named = sorted({gate for row in rows for gate in row.gates})
        await self.both_of(lambda store: store.gates(named))
        changed = self.watch.see(rows)
        if self.watch.rows:  # and one that nobody touched
            self._turn += 1
            changed.append(list(self.watch.rows)[self._turn % len(self.watch.rows)])
        await self._look(changed)

    async def _look(self, ids: Iterable[UUID]) -> None:
        for job_id in ids:
            events = await self.both_of(partial(store_dump.events, job_id=job_id))
            assert events is not None
            self.watch.read(job_id, events)
            await self.both_of(partial(store_dump.attempts, job_id=job_id))
            edges = await self.both_of(partial(store_dump.edges, job_id=job_id))
            self.watch.depends(job_id, edges)
