"""Limits that come, change and go while jobs of all kinds wait, run and end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.core.admission.gates import LIMIT, Limit
from windlass.core.decisions import outcome
from windlass.testing.conformance.model import strategies
from windlass.testing.conformance.model.machine import StoreModel
from windlass.testing.conformance.model.store_dump import ALL
from windlass.testing.conformance.model.strategies import Options


class CrowdModel(StoreModel):
    """The machine, and more often than by chance somebody who waits at a gate."""

    @rule(name=strategies.limited, limit=strategies.bounds, swept=st.booleans())
    def set_a_limit(self, name: str, limit: Limit | None, swept: bool) -> None:
        """Or remove it: then all who wait for it may pass, with the next sweep."""
        if limit is not None:
            self.put_limit(name, limit)
        else:
            self.both(lambda store: store.delete_records(LIMIT, [name]))
            self.watch.limits.lift(name)
        if swept:
            self.sweep_once(ALL, 0.5)

    @rule(
        limits=strategies.bounded,
        crowd=st.lists(strategies.crowds, min_size=2, max_size=6),
        ends=st.lists(strategies.ends, max_size=3),
        alone=st.booleans(),
        later=st.sampled_from([None, 0.0, 5.0, 10.0]),
    )
    def come_in_crowds(
        self,
        limits: list[tuple[str, Limit]],
        crowd: list[Options],
        ends: list[outcome.Outcome],
        alone: bool,
        later: float | None,
    ) -> None:
        """Many come at once, some are done, and after a while somebody sweeps."""
        for name, limit in limits:
            self.put_limit(name, limit)
        self.put_in([[options] for options in crowd])
        rows = self.take([(queue, ALL) for queue in strategies.QUEUES], "w1")
        settled = [
            outcome.settle(row, end, random=lambda: 0.5)
            for row, end in zip(rows, ends, strict=False)
        ]
        for wishes in [[wish] for wish in settled] if alone else [settled]:
            self.apply(wishes)
        if later is not None:
            self.clock.advance(later)
            self.sweep_once(ALL, 0.5)
