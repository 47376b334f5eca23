"""Each planted mistake is found: by the conformance test that exists for it, and by the model."""

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
from windlass.testing.conformance import (
    cancel,
    claim,
    events,
    leases,
    order,
    progress,
    settle,
    uniqueness,
)
from windlass.testing.conformance.model import run_model

Story: TypeAlias = Callable[..., Awaitable[None]]

FOUND_BY: dict[type[Broken], Story] = {
    broken_stores.SettlesByIdOnly: settle.TestSettling.test_only_the_holder_of_the_lease_can_settle,
    broken_stores.RescuesUnseen: (
        leases.TestLeases.test_a_rescue_seen_before_the_next_worker_crashed_too_is_stale
    ),
    broken_stores.HandsOutTwice: (
        claim.TestClaiming.test_many_claims_at_once_never_hand_out_a_job_twice
    ),
    broken_stores.SkipsNumbers: events.TestEvents.test_events_are_numbered_from_1_without_gaps,
    broken_stores.SlipsBack: progress.TestProgress.test_a_lower_report_does_not_move_it_back,
    broken_stores.ForgetsKeysInBulk: (
        uniqueness.TestUniqueness.test_a_key_counts_within_one_bulk_enqueue_too
    ),
    broken_stores.DisownsRepeats: (
        settle.TestSettling.test_a_repeated_settle_is_answered_as_the_first
    ),
    broken_stores.LetsSuccessWin: cancel.TestCancel.test_an_accepted_cancel_wins_over_every_outcome,
    broken_stores.LastComesFirst: order.TestOrder.test_first_in_first_out_over_many_calls,
    broken_stores.RewritesEvents: events.TestEvents.test_an_event_once_read_never_changes,
}

RARE = {
    broken_stores.ForgetsKeysInBulk,
    broken_stores.SlipsBack,
}  # the model needs many examples for these


async def tell(story: Story, kind: type[MemoryStore]) -> None:
    """Run one test of the suite as pytest would, with its fixtures made here."""
    told = 0
    for values in every_case(story):
        clock = VirtualClock()
        first = kind(clock=clock)

        async def open_store(first: MemoryStore = first) -> Store:
            return first.twin()

        given = {"store": first, "clock": clock, "open_store": open_store, **values}
        suite = getattr(inspect.getmodule(story), story.__qualname__.partition(".")[0])
        names = [*inspect.signature(story).parameters][1:]
        with suppress(pytest.skip.Exception):
            await story(suite(), **{name: given[name] for name in names})
            told += 1
    if not told:
        raise RuntimeError("every case was skipped")


def every_case(story: Story) -> list[dict[str, Any]]:
    """The values that `parametrize` would give."""
    marks = [mark for mark in getattr(story, "pytestmark", []) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    [mark] = marks
    name, values = mark.args
    return [{name: value} for value in values]


def test_no_planted_mistake_is_left_out() -> None:
    here = {kind for kind in Broken.__subclasses__() if kind.__module__ == Broken.__module__}
    assert set(FOUND_BY) == here
    assert len(FOUND_BY) == 10


@pytest.mark.parametrize("kind", FOUND_BY, ids=lambda kind: kind.__name__)
async def test_the_suite_finds_it(kind: type[Broken]) -> None:
    with pytest.raises(AssertionError):
        await tell(FOUND_BY[kind], kind)


@pytest.mark.parametrize("kind", FOUND_BY, ids=lambda kind: kind.__name__)
async def test_the_same_story_is_true_of_a_sound_store(kind: type[Broken]) -> None:
    await tell(FOUND_BY[kind], MemoryStore)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in RARE)) for kind in FOUND_BY],
    ids=lambda kind: kind.__name__,
)
def test_the_model_finds_it(kind: type[Broken]) -> None:
    with pytest.raises(AssertionError):
        run_model(
            lambda clock: kind(clock=clock).twin, steps=40, examples=200, seed=1, shrink=False
        )
