"""Each planted bug is found by its conformance test and by the model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from tests.testing import broken_stores
from tests.testing.broken_stores import Broken

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock
from windlass.testing.conformance.attempts import claim, leases, progress, settle
from windlass.testing.conformance.jobs import cancel, order, uniqueness
from windlass.testing.conformance.model import run_model
from windlass.testing.conformance.reads import events

ConformanceTest: TypeAlias = Callable[..., Awaitable[None]]

FOUND_BY: dict[type[Broken], ConformanceTest] = {
    broken_stores.SettlesByIdOnly: settle.TestSettle.test_only_the_holder_of_the_lease_can_settle,
    broken_stores.RescuesUnseen: (
        leases.TestLeases.test_a_rescue_read_before_the_next_crash_is_stale
    ),
    broken_stores.ClaimsTwice: (claim.TestClaim.test_concurrent_claims_never_return_a_job_twice),
    broken_stores.SkipsNumbers: events.TestEvents.test_events_are_numbered_from_1_without_gaps,
    broken_stores.LowersProgress: progress.TestProgress.test_a_lower_percent_is_ignored,
    broken_stores.ForgetsKeysInBulk: (
        uniqueness.TestUniqueness.test_a_key_is_unique_within_one_bulk_enqueue
    ),
    broken_stores.RejectsRepeats: (
        settle.TestSettle.test_a_repeated_settle_returns_the_same_result
    ),
    broken_stores.LetsSuccessWin: cancel.TestCancel.test_an_accepted_cancel_wins_over_every_outcome,
    broken_stores.NewestFirst: order.TestOrder.test_first_in_first_out_over_many_calls,
    broken_stores.RewritesEvents: events.TestEvents.test_an_event_never_changes,
}

RARE = {
    broken_stores.ForgetsKeysInBulk,
    broken_stores.LowersProgress,
}  # the model needs many examples for these


async def run_test(test: ConformanceTest, broken: type[MemoryStore]) -> None:
    """Run one test of the suite as pytest would, with fixtures created here."""
    completed = 0
    for values in every_case(test):
        clock = VirtualClock()
        first = broken(clock=clock)

        async def open_store(first: MemoryStore = first) -> Store:
            return first.twin()

        given = {"store": first, "clock": clock, "open_store": open_store, **values}
        suite = getattr(inspect.getmodule(test), test.__qualname__.partition(".")[0])
        names = [*inspect.signature(test).parameters][1:]
        with suppress(pytest.skip.Exception):
            await test(suite(), **{name: given[name] for name in names})
            completed += 1
    if not completed:
        raise RuntimeError("every case was skipped")


def every_case(test: ConformanceTest) -> list[dict[str, Any]]:
    """Return the values of `parametrize`."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    [mark] = marks
    name, values = mark.args
    return [{name: value} for value in values]


def test_every_broken_store_is_listed() -> None:
    here = {broken for broken in Broken.__subclasses__() if broken.__module__ == Broken.__module__}
    assert set(FOUND_BY) == here
    assert len(FOUND_BY) == 10


@pytest.mark.parametrize("broken", FOUND_BY, ids=lambda broken: broken.__name__)
async def test_the_suite_finds_each_bug(broken: type[Broken]) -> None:
    with pytest.raises(AssertionError):
        await run_test(FOUND_BY[broken], broken)


@pytest.mark.parametrize("broken", FOUND_BY, ids=lambda broken: broken.__name__)
async def test_a_correct_store_passes_the_same_test(broken: type[Broken]) -> None:
    await run_test(FOUND_BY[broken], MemoryStore)


@pytest.mark.parametrize(
    "broken",
    [pytest.param(broken, marks=[pytest.mark.slow] * (broken in RARE)) for broken in FOUND_BY],
    ids=lambda broken: broken.__name__,
)
def test_the_model_finds_each_bug(broken: type[Broken]) -> None:
    with pytest.raises(AssertionError):
        run_model(
            lambda clock: broken(clock=clock).twin, steps=40, examples=200, seed=1, shrink=False
        )
