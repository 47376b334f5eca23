"""Two stores with one clock, and the comparison of all jobs after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine, invariant

from windlass.core.errors import StoreUnavailableError
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.model import store_dump
from windlass.testing.conformance.model.invariants import InvariantChecker
from windlass.testing.conformance.model.store_dump import ALL

T = TypeVar("T")
Call = Callable[[Store], Coroutine[Any, Any, T]]
Open = Callable[[], Store]
MakeStore = Callable[[VirtualClock], Open]
"""Called once per history. Returns a function that opens the data of that history."""

_MAX_TRIES = 50  # of a call that raises StoreUnavailableError


class StorePair(RuleBasedStateMachine):
    """Calls both stores: `reference` is the memory store, `subject` the store under test."""

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.reference = MemoryStore(clock=self.clock)
        self.checker = InvariantChecker()
        self._id_count = 0
        self._rotation = 0
        self._failed = False
        self._open = make_store(self.clock)
        self._runner = asyncio.Runner()
        self.other: Store | None = None
        self.subject = self._open()
        self.run(store_dump.migrate(self.subject))
        capabilities = self.subject.capabilities
        self.ordered = capabilities.fifo and capabilities.priority_classes is None

    def teardown(self) -> None:
        try:
            if not self._failed:  # a second error would hide the first
                self.run(self._check_jobs(self.checker.rows))
        finally:
            with self._runner as runner:
                for store in (self.subject, self.other):
                    if store is not None:
                        runner.run(store_dump.close(store))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(work)
        except BaseException:
            self._failed = True
            raise

    def reopen(self) -> None:
        self.run(store_dump.close(self.subject))
        self.subject = self._open()

    def uuid(self) -> UUID:
        """Return a new id, the same in every run of one history."""
        self._id_count += 1
        return UUID(int=(START // 1000 << 80) | (7 << 76) | (2 << 62) | self._id_count)

    def both(self, call: Call[T]) -> T:
        """Call both stores, assert equal results, and return the result of the reference."""
        return self.run(self.both_of(call))

    async def both_of(self, call: Call[T]) -> T:
        expected = await call(self.reference)
        result = await self.call_subject(call)
        assert store_dump.comparable(result) == store_dump.comparable(expected)
        return expected

    async def call_subject(self, call: Call[T]) -> T:
        """Call the subject; repeat the call while it is unavailable."""
        for _ in range(_MAX_TRIES):
            try:
                return await call(self.subject)
            except StoreUnavailableError:
                continue
        return await call(self.subject)

    @invariant()
    def both_stores_agree(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        rows = await store_dump.find(self.subject, JobQuery(limit=ALL))
        expected = await store_dump.find(self.reference, JobQuery(limit=ALL))
        assert store_dump.comparable(rows) == store_dump.comparable(expected)
        if self.ordered:
            assert store_dump.waiting_order(rows) == store_dump.waiting_order(expected)
        gates = sorted({gate for row in rows for gate in row.gates})
        await self.both_of(lambda store: store.insights.gates(gates))
        changed = self.checker.update(rows)
        if self.checker.rows:  # and one unchanged job, in rotation
            self._rotation += 1
            changed.append(list(self.checker.rows)[self._rotation % len(self.checker.rows)])
        await self._check_jobs(changed)

    async def _check_jobs(self, ids: Iterable[UUID]) -> None:
        for job_id in ids:
            events = await self.both_of(partial(store_dump.events, job_id=job_id))
            assert events is not None
            self.checker.check_log(job_id, events)
            await self.both_of(partial(store_dump.attempts, job_id=job_id))
            edges = await self.both_of(partial(store_dump.edges, job_id=job_id))
            self.checker.check_edges(job_id, edges)
