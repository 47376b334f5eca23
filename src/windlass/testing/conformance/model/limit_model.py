"""State machine with limits that are set, changed and removed while jobs run."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.core.admission.limit import LIMIT, Limit
from windlass.core.decisions import outcome
from windlass.testing.conformance.model import strategies
from windlass.testing.conformance.model.store_dump import ALL
from windlass.testing.conformance.model.store_model import StoreModel
from windlass.testing.conformance.model.strategies import Options


class LimitModel(StoreModel):
    """The state machine with extra rules that make jobs wait at gates."""

    @rule(name=strategies.limited, limit=strategies.bounds, swept=st.booleans())
    def set_a_limit(self, name: str, limit: Limit | None, swept: bool) -> None:
        """Set or remove a limit. After a removal, the next sweep admits all waiting jobs."""
        if limit is not None:
            self.put_limit(name, limit)
        else:
            self.both(lambda store: store.delete_records(LIMIT, [name]))
            self.checker.limits.remove(name)
        if swept:
            self.sweep_once(ALL, 0.5)

    @rule(
        limits=strategies.bounded,
        burst=st.lists(strategies.burst_jobs, min_size=2, max_size=6),
        outcomes=st.lists(strategies.mostly_successes, max_size=3),
        settle_separately=st.booleans(),
        sweep_after=st.sampled_from([None, 0.0, 5.0, 10.0]),
    )
    def enqueue_a_burst(
        self,
        limits: list[tuple[str, Limit]],
        burst: list[Options],
        outcomes: list[outcome.Outcome],
        settle_separately: bool,
        sweep_after: float | None,
    ) -> None:
        """Enqueue many jobs, settle some of them, then sweep after a while."""
        for name, limit in limits:
            self.put_limit(name, limit)
        self.enqueue_batch([[options] for options in burst])
        rows = self.claim_rows([(queue, ALL) for queue in strategies.QUEUES], "w1")
        settled = [
            outcome.settle(row, attempt_outcome, random=lambda: 0.5)
            for row, attempt_outcome in zip(rows, outcomes, strict=False)
        ]
        for transitions in (
            [[transition] for transition in settled] if settle_separately else [settled]
        ):
            self.apply(transitions)
        if sweep_after is not None:
            self.clock.advance(sweep_after)
            self.sweep_once(ALL, 0.5)
