"""Short storms over real processes; the long ones are `python -m benchmarks.chaos`.

Each is judged by the checker, which has seen what producers and tasks wrote down and reads the raw
tables. `WINDLASS_SEED` repeats the choices of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import pytest
from benchmarks.chaos.report import Verdict
from benchmarks.chaos.storms import STORMS, Plan, run

Rage = Callable[..., Verdict]


@pytest.fixture
def rage(tmp_path: Path) -> Rage:
    def storm(name: str, *, jobs: int, seconds: float) -> Verdict:
        seed = int(os.environ.get("WINDLASS_SEED") or SystemRandom().getrandbits(32))
        print(f"{name}, seed {seed}, in {tmp_path}")  # noqa: T201 - shown if it fails
        plan = Plan(jobs=jobs, seconds=seconds, seed=seed, workers=3)
        verdict = run(STORMS[name], plan, tmp_path / name)
        print(verdict)  # noqa: T201
        assert verdict.violations == []
        assert verdict.jobs >= jobs
        return verdict

    return storm


def test_workers_that_are_killed_all_the_time_lose_nothing(rage: Rage) -> None:
    verdict = rage("kill", jobs=150, seconds=3)
    assert verdict.faults["SIGKILL"] >= 2
    assert verdict.crashes > 0
    assert verdict.ended == {"succeeded": verdict.jobs}


def test_after_everything_was_killed_at_once_what_was_acknowledged_is_done(rage: Rage) -> None:
    verdict = rage("tree", jobs=100, seconds=4)
    assert verdict.faults["of everything"] >= 1
    assert verdict.ended == {"succeeded": verdict.jobs}


def test_a_worker_that_slept_past_its_lease_is_refused_and_stops(rage: Rage) -> None:
    verdict = rage("freeze", jobs=100, seconds=4)
    assert verdict.faults["SIGSTOP"] == verdict.faults["SIGCONT"] >= 1
    assert verdict.refused_settles > 0  # or its worker dropped them, told by the store
    assert verdict.ended == {"succeeded": verdict.jobs}


def test_workers_that_are_replaced_burn_no_attempt(rage: Rage) -> None:
    verdict = rage("term", jobs=100, seconds=5)
    assert verdict.faults["SIGTERM"] >= 2
    assert verdict.attempts > verdict.jobs  # some were given back
    assert verdict.crashes == 0


def test_a_cancel_that_races_with_the_end_has_one_true_answer(rage: Rage) -> None:
    verdict = rage("cancel", jobs=150, seconds=30)
    assert {"running", "conflict"} & verdict.cancels.keys()
    assert verdict.ended["canceled"] + verdict.ended["succeeded"] == verdict.jobs


def test_a_killer_ends_at_its_cap_and_every_innocent_succeeds(rage: Rage) -> None:
    verdict = rage("killer", jobs=60, seconds=30)
    assert verdict.ended == {"failed": 1, "succeeded": verdict.jobs - 1}
