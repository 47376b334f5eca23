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
        crowd=st.lists(strategies.crowds, min_size=2, max_size=6),
        ends=st.lists(strategies.ends, max_size=3),
        alone=st.booleans(),
        later=st.sampled_from([None, 0.0, 5.0, 10.0]),
    )
    def enqueue_a_crowd(
        self,
        limits: list[tuple[str, Limit]],
        crowd: list[Options],
        ends: list[outcome.Outcome],
        alone: bool,
        later: float | None,
    ) -> None:
        """Enqueue many jobs, settle some of them, then sweep after a while."""
        for name, limit in limits:
            self.put_limit(name, limit)
        self.enqueue_batch([[options] for options in crowd])
        rows = self.claim_rows([(queue, ALL) for queue in strategies.QUEUES], "w1")
        settled = [
            outcome.settle(row, end, random=lambda: 0.5)
            for row, end in zip(rows, ends, strict=False)
        ]
        for transitions in [[transition] for transition in settled] if alone else [settled]:
            self.apply(transitions)
        if later is not None:
            self.clock.advance(later)
            self.sweep_once(ALL, 0.5)
