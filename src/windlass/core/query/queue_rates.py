"""A queue as people watch it: how quickly it goes, and when it will be empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from windlass.core.clock import SECOND
from windlass.core.job.state import State

MINUTE = 60.0
_RAN = frozenset({State.SUCCEEDED, State.FAILED, State.RETRYING})
IN_LINE = frozenset({State.QUEUED, State.RUNNING, State.RETRYING})
"""What a drain waits for; a job that is `created` has not come into its queue yet."""


class Counted(Protocol):
    """A line of a minute's rollup, as far as it is needed here."""

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
    """Attempts per minute, and their mean times in seconds, over the last `minutes`.

    started: that ran and have ended
    succeeded: with success
    failed: for good
    retried: to run again: errors, snoozes, jobs given back
    canceled: jobs, whether they had started or not
    mean_wait: in line before the start; None if none ran
    mean_run: from start to end
    """

    minutes: float
    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    retried: float = 0.0
    canceled: float = 0.0
    mean_wait: float | None = None
    mean_run: float | None = None


def rates(lines: Iterable[Counted], minutes: float) -> Rates:
    counts: dict[State, int] = {}
    wait = run = 0
    for line in lines:
        counts[line.outcome] = counts.get(line.outcome, 0) + line.count
        if line.outcome in _RAN:
            wait += line.wait
            run += line.run
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """One look at queues that are being emptied.

    left: jobs queued, running or retrying; a lower bound if `capped`
    most: the most that were left at any look
    running: how many of them run
    later: jobs that have not come into their queue: held, for later, waiting for others
    paused: those of the queues that hand out no jobs
    seconds: since the first look
    eta: seconds to go at the pace of late; None if that says nothing
    """

    left: int
    most: int
    running: int
    later: int = 0
    capped: bool = False
    paused: tuple[str, ...] = ()
    seconds: float = 0.0
    eta: float | None = None


def time_to_go(looks: Sequence[tuple[float, int]]) -> float | None:
    """From looks of (seconds, left), oldest first: the time at which nothing is left, from now."""
    if len(looks) < 2:  # noqa: PLR2004 - a pace needs two
        return None
    (began, before), (now, left) = looks[0], looks[-1]
    if left >= before or now <= began:
        return None
    return left * (now - began) / (before - left)
