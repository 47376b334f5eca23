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
from windlass.core.job.state import RESCUING, Trigger
from windlass.stores.sqlite import maintenance

_Seen: TypeAlias = tuple[LifecycleRow, Transition]
_original_decide, _original_expired = decide.decide, maintenance.expired


def _decide_after(change: Callable[[LifecycleRow, Transition], _Seen]) -> None:
    def planted(
        row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
    ) -> Decision:
        return _original_decide(*change(row, transition), now, past)

    vars(decide)["decide"] = planted


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

    def expired(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
        return _original_expired(connection, now + 3600 * SECOND, limit)

    _decide_after(change)
    vars(maintenance)["expired"] = expired
