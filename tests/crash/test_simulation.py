"""Simulated lives: the worker's own code in virtual time, judged; and whether mistakes show."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.chaos.simulation.check import check
from benchmarks.chaos.simulation.life import FAULTS, Life, Plan, live
from tests.testing import broken

from windlass.core.job import JobRow
from windlass.core.outcome import Failed, Outcome, Released, settle
from windlass.core.transition import Transition
from windlass.store import Store
from windlass.testing.factories import make_failure
from windlass.worker import settler, sweeper
from windlass.worker.keeper import Keeper

SMALL = Plan(jobs=120, seconds=15.0)
TINY = Plan(jobs=60, seconds=10.0, quick=0.3, cancels=0.3, lease=1.0, pause=0.7)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "windlass")  # faults are what workers complain about


def violations(life: Life) -> list[str]:
    return asyncio.run(check(life))


@pytest.mark.parametrize("seed", range(4))
def test_a_life_full_of_faults_leaves_nothing_lost_and_nothing_done_twice(seed: int) -> None:
    life = live(seed, SMALL)
    assert violations(life) == []
    assert len(life.acknowledged) == SMALL.jobs
    assert set(life.faults) == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_life_with_faults_of_one_kind_is_sound(fault: str) -> None:
    assert violations(live(1, replace(SMALL, faults=(fault,)))) == []


def test_without_a_fault_no_attempt_is_lost() -> None:
    life = live(2, replace(SMALL, faults=(), lease=0.5))
    assert violations(life) == []


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, again, other = (live(seed, SMALL) for seed in (5, 5, 6))
    assert first.script.ledger == again.script.ledger
    assert (first.world.steps, first.history.calls) == (again.world.steps, again.history.calls)
    assert first.script.ledger != other.script.ledger


def test_a_dead_workers_jobs_are_claimable_within_a_lease_and_two_seconds() -> None:
    """`it_came_back_in_time` looks at every rescue where nothing but a kill can be the reason."""
    life = live(3, replace(SMALL, faults=("kill",), pause=0.7))
    assert violations(life) == []
    assert life.faults["kill"] > 10


# -- teeth


@pytest.mark.parametrize(
    "store",
    [
        broken.SettlesByIdOnly,
        broken.HandsOutTwice,
        broken.SkipsNumbers,
        broken.LetsSuccessWin,
        broken.DisownsRepeats,
    ],
)
def test_a_mistake_of_the_store_shows(store: Callable[..., Store]) -> None:
    assert any(violations(live(seed, TINY, store)) for seed in range(12))


def _release_counts(patch: pytest.MonkeyPatch) -> None:
    """A deploy burns an attempt."""

    def counting(job: JobRow, outcome: Outcome, **more: Any) -> Transition:
        failed = Failed(failure=make_failure("stopped"))
        return settle(job, failed if isinstance(outcome, Released) else outcome, **more)

    patch.setattr(settler, "settle", counting)


def _sweeper_dies(patch: pytest.MonkeyPatch) -> None:
    """One failed sweep was the last."""

    async def run(self: sweeper.Sweeper) -> None:
        try:
            while True:
                await self.once()
                await asyncio.sleep(self._interval)
        except Exception:  # noqa: BLE001 - the mistake
            return

    patch.setattr(sweeper.Sweeper, "run", run)


def _keeper_sleeps(patch: pytest.MonkeyPatch) -> None:
    """Leases are not kept."""
    patch.setattr(Keeper, "hold_all", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "faults"),
    [
        (_release_counts, ("stop",)),
        (_sweeper_dies, ("weather",)),
        (_keeper_sleeps, ()),
    ],
)
def test_a_mistake_of_the_worker_shows(
    plant: Callable[[pytest.MonkeyPatch], None],
    faults: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = replace(TINY, faults=faults, lease=1.0, calm=60.0)
    assert all(violations(live(seed, plan)) == [] for seed in range(2))
    plant(monkeypatch)
    assert any(violations(live(seed, plan)) for seed in range(12))
