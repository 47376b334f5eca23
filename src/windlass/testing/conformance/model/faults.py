"""What befalls both stores: time passes, workers die, handles are closed and opened."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.testing.conformance.model import strategies
from windlass.testing.conformance.model.queries import Looking


class Accidents(Looking):
    """Every rule is nobody's wish."""

    @rule(seconds=strategies.passing)
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def all_workers_die(self) -> None:
        self.let_leases_run_out()

    def let_leases_run_out(self) -> None:
        leases = [row.lease_until or 0 for row in self.watch.rows.values()]
        self.clock.jump(max([self.clock.now(), *leases]))

    @rule(how=st.sampled_from(["reopen", "swap"]))
    def change_handles(self, how: str) -> None:
        if how == "reopen":
            self.reopen()
        else:
            self.subject, self.other = self.other or self.subject.twin(), self.subject
        assert self.both(lambda store: store.ping()) == self.clock.now()
