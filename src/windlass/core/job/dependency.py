"""What a job waits for: other jobs, and what becomes of it when one of them is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.job.state import FINAL, State
from windlass.core.value import pair


class OnParent(StrEnum):
    """What a job does when a job that it depends on ends without success."""

    CANCEL = "cancel"  # it is canceled, and so are those that depend on it
    FAIL = "fail"  # it fails, with the code `parent_failed`
    RUN = "run"  # it runs all the same, once the others have ended, too


@pair
class Parent:
    """A job that another one waits for, as far as that one needs to know it."""

    id: UUID
    owner: str
    state: State

    @property
    def open(self) -> bool:
        return self.state not in FINAL


@pair
class Edges:
    """Whom a job waits or waited for, in the order in which it named them; and who waits for it."""

    parents: tuple[UUID, ...] = ()
    children: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStats:
    """A flow as a whole. Jobs that were retried are left out: their retries stand for them.

    `percent` is the mean of its jobs'. `ended_at` is there once all of them have ended. If it is
    `capped`, all of this is of its newest jobs only.
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
        """From what each state sums up to: number, percent, first creation, last end."""
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
        """Running while any of its jobs may still run; then the worst end that one of them had."""
        return _combined(self.counts)


@dataclass(frozen=True, slots=True)
class FlowPage:
    """`cursor` leads to the next page, None is the end; a page before it may be short or empty."""

    flows: Sequence[FlowStats]
    cursor: UUID | None


def _combined(counts: Mapping[State, int]) -> State:
    there = {state for state, number in counts.items() if number}
    if there <= FINAL:
        worst: Sequence[State] = (State.FAILED, State.CANCELED, State.SUCCEEDED)
        return next((state for state in worst if state in there), State.CREATED)
    if there <= {State.CREATED}:
        return State.CREATED
    if there <= {State.CREATED, State.QUEUED}:
        return State.QUEUED
    return State.RUNNING
