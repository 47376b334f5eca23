"""Rates of queues: attempts per minute and their mean times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from windlass.core.clock import SECOND
from windlass.core.job.state import State

MINUTE = 60.0
_RAN = frozenset({State.SUCCEEDED, State.FAILED, State.RETRYING})


class RollupCounts(Protocol):
    """The fields of a rollup that `rates` needs."""

    @property
    def outcome(self) -> State: ...
    @property
    def count(self) -> int: ...
    @property
    def wait(self) -> int: ...
    @property
    def run(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Attempts per minute and their mean times in seconds, over the last `minutes`.

    started: attempts that started and have ended
    succeeded: attempts that succeeded
    failed: attempts that failed the job
    retried: attempts that run again: after errors, snoozes, releases
    canceled: jobs that were canceled, started or not
    mean_wait: mean queue wait before the start; None if no attempt ran
    mean_run: mean run time; None if no attempt ran
    """

    minutes: float
    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    retried: float = 0.0
    canceled: float = 0.0
    mean_wait: float | None = None
    mean_run: float | None = None


def rates(rollups: Iterable[RollupCounts], minutes: float) -> Rates:
    """Compute the rates of a queue from its rollups."""
    counts: dict[State, int] = {}
    wait = run = 0
    for rollup in rollups:
        counts[rollup.outcome] = counts.get(rollup.outcome, 0) + rollup.count
        if rollup.outcome in _RAN:
            wait += rollup.wait
            run += rollup.run
    ran = sum(counts.get(state, 0) for state in _RAN)
    return Rates(
        minutes=minutes,
        started=ran / minutes,
        succeeded=counts.get(State.SUCCEEDED, 0) / minutes,
        failed=counts.get(State.FAILED, 0) / minutes,
        retried=counts.get(State.RETRYING, 0) / minutes,
        canceled=counts.get(State.CANCELED, 0) / minutes,
        mean_wait=wait / ran / SECOND if ran else None,
        mean_run=run / ran / SECOND if ran else None,
    )
