"""Rules for faults of both stores: clock jumps, worker crashes, reopened handles, retention."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.store import Pruned, Retention, Store
from windlass.testing.conformance.model import strategies
from windlass.testing.conformance.model.query_rules import QueryRules
from windlass.testing.conformance.model.store_dump import ALL


class FaultRules(QueryRules):
    """Rules for events that no caller requests."""

    @rule(seconds=strategies.clock_steps)
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def all_workers_die(self) -> None:
        self.expire_leases()

    def expire_leases(self) -> None:
        leases = [row.lease_until or 0 for row in self.checker.rows.values()]
        self.clock.jump(max([self.clock.now(), *leases]))

    @rule(how=st.sampled_from(["reopen", "swap"]))
    def change_handles(self, how: str) -> None:
        if how == "reopen":
            self.reopen()
        else:
            self.subject, self.other = self.other or self.subject.twin(), self.subject
        assert self.both(lambda store: store.ping()) == self.clock.now()

    @rule(
        limit=st.sampled_from([1, 2, ALL]), retention=strategies.retentions, later=strategies.later
    )
    def prune(self, limit: int, retention: Retention, later: float) -> None:
        self.clock.advance(later)
        pruned = self.run(self._prune(self.reference, retention, limit))
        assert self.run(self._prune(self.subject, retention, limit)) == pruned

    async def _prune(self, store: Store, retention: Retention, limit: int) -> Pruned:
        """Prune until nothing is left: the order under a small limit is undefined."""
        total = Counter[str]()
        while (pruned := await store.prune(retention, limit)) != Pruned():
            assert max(pruned.jobs, pruned.logs) <= limit
            total += Counter(jobs=pruned.jobs, logs=pruned.logs, records=pruned.records)
        logs = total["logs"] if limit == ALL else 0  # a log may be pruned before its job or with it
        return Pruned(total["jobs"], logs, total["records"])
