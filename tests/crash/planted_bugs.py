"""Bugs that are planted in a worker process before it starts; a storm must detect them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import apsw

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions import decide
from windlass.core.decisions.transition import Decision, PastOutcome, Transition
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import RESCUING, State, Trigger
from windlass.stores.sqlite.writes import maintenance

_Seen: TypeAlias = tuple[LifecycleRow, Transition]
_original_transition, _original_due = decide.transition, maintenance.due


def _decide_after(change: Callable[[LifecycleRow, Transition], _Seen]) -> None:
    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        return _original_transition(*change(row, transition), now, past)

    vars(decide)["transition"] = planted


def release_counts_as_a_failure() -> None:
    def change(row: LifecycleRow, transition: Transition) -> _Seen:
        is_release = transition.trigger is Trigger.RELEASE
        return row, replace(transition, trigger=Trigger.RETRY) if is_release else transition

    _decide_after(change)


def success_overrides_a_cancel() -> None:
    def change(row: LifecycleRow, transition: Transition) -> _Seen:
        return replace(row, cancel_at=None), transition

    _decide_after(change)


def rescue_does_not_wait_for_the_lease() -> None:
    def change(row: LifecycleRow, transition: Transition) -> _Seen:
        return replace(row, lease_until=0) if transition.trigger in RESCUING else row, transition

    def due(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
        later = _original_due(connection, now + 3600 * SECOND, limit)
        expired = [row for row in later if row.state is State.RUNNING]
        due = _original_due(connection, now, limit)
        return [*expired, *(row for row in due if row.state is not State.RUNNING)]

    _decide_after(change)
    vars(maintenance)["due"] = due
