"""Rates of queues, and the estimate of a drain."""

from __future__ import annotations

import pytest

from windlass.core.clock import SECOND
from windlass.core.job.state import State
from windlass.core.query.drain_progress import drain_eta
from windlass.core.query.queue_rates import Rates, rates
from windlass.store import Rollup


def rollup(outcome: State, count: int, wait: float = 0.0, run: float = 0.0) -> Rollup:
    """Return a rollup of `count` attempts; times are sums in seconds."""
    return Rollup(
        minute=0, queue="q", task="t", outcome=outcome, count=count,
        wait=round(wait * SECOND), run=round(run * SECOND),
    )  # fmt: skip


def test_without_rollups_rates_are_zero_and_means_unknown() -> None:
    assert rates([], 5.0) == Rates(minutes=5.0)


def test_rates_are_per_minute_and_means_are_per_attempt_that_ran() -> None:
    rollups = [
        rollup(State.SUCCEEDED, 8, wait=16, run=8),
        rollup(State.SUCCEEDED, 2, wait=4, run=2),
        rollup(State.FAILED, 1, wait=1, run=10),
        rollup(State.RETRYING, 1, wait=1, run=4),
        rollup(State.CANCELED, 6, wait=6000),  # while queued; they never ran
    ]
    assert rates(rollups, 4.0) == Rates(
        minutes=4.0, started=3.0, succeeded=2.5, failed=0.25, retried=0.25, canceled=1.5,
        mean_wait=22 / 12, mean_run=2.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ([], None),
        ([(0.0, 100)], None),
        ([(0.0, 100), (10.0, 50)], 10.0),
        ([(0.0, 100), (5.0, 100), (10.0, 80)], 40.0),
        ([(0.0, 100), (10.0, 100)], None),
        ([(0.0, 100), (10.0, 120)], None),
        ([(0.0, 100), (10.0, 0)], 0.0),
    ],
)
def test_the_eta_of_a_drain_uses_recent_samples(
    samples: list[tuple[float, int]], wanted: float | None
) -> None:
    assert drain_eta(samples) == wanted
