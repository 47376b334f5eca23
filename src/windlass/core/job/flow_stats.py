"""Statistics of flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.job.state import FINAL, State


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStats:
    """Statistics of a flow. Of a retried job, only the newest retry counts.

    `percent` is the mean of its jobs. `ended_at` is set once all jobs have ended. With `capped`,
    only the newest jobs were counted.
    """

    flow_id: UUID
    counts: Mapping[State, int] = field(default_factory=dict)
    percent: int = 0
    created_at: Instant = 0
    ended_at: Instant | None = None
    capped: bool = False

    @staticmethod
    def of(
        flow_id: UUID,
        sums: Sequence[tuple[str, int, int, Instant, Instant | None]],
        *,
        capped: bool = False,
    ) -> FlowStats:
        """Build from sums per state: number, percent, first creation, last end."""
        number = sum(count for _, count, _, _, _ in sums)
        ends = [ended for _, _, _, _, ended in sums if ended is not None]
        counts: Counter[State] = Counter()
        for state, count, *_ in sums:
            counts[State(state)] += count
        return FlowStats(
            flow_id=flow_id,
            counts=counts,
            percent=sum(percent for _, _, percent, _, _ in sums) // number,
            created_at=min(created for _, _, _, created, _ in sums),
            ended_at=max(ends) if counts.keys() <= FINAL else None,
            capped=capped,
        )

    @property
    def jobs(self) -> int:
        return sum(self.counts.values())

    @property
    def state(self) -> State:
        """Return `running` while a job can still run; then the worst final state of its jobs."""
        return _combined(self.counts)


@dataclass(frozen=True, slots=True)
class FlowPage:
    """One page of flows. `cursor` is for the next page, None at the end; a page may be short."""

    flows: Sequence[FlowStats]
    cursor: UUID | None


def _combined(counts: Mapping[State, int]) -> State:
    present = {state for state, number in counts.items() if number}
    if present <= FINAL:
        worst: Sequence[State] = (State.FAILED, State.CANCELED, State.SUCCEEDED)
        return next((state for state in worst if state in present), State.CREATED)
    if present <= {State.CREATED}:
        return State.CREATED
    if present <= {State.CREATED, State.QUEUED}:
        return State.QUEUED
    return State.RUNNING
