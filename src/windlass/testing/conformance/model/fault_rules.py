"""Rules for faults of both stores: clock jumps, worker crashes, reopened handles."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.testing.conformance.model import strategies
from windlass.testing.conformance.model.query_rules import QueryRules


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
