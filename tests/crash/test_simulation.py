"""Simulation runs: the worker's own code in virtual time, checked; and planted bugs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from benchmarks.chaos.call_history import CallHistory, HistoryRecordingStore
from benchmarks.chaos.checks.linearizability import Call, Kind
from benchmarks.chaos.simulation import __main__ as command
from benchmarks.chaos.simulation.checks import check
from benchmarks.chaos.simulation.event_loops import World
from benchmarks.chaos.simulation.network import LATE, Connection, Network, RemoteStore
from benchmarks.chaos.simulation.run import FAULTS, Plan, SimulationRun, simulate
from tests.testing import broken_stores

from windlass.core.decisions.outcome import Failed, Outcome, Released, settle
from windlass.core.decisions.transition import ApplyResult, CancelRequest, Transition
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger
from windlass.store import AttemptRecords, Store
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import make_failure, make_job
from windlass.worker.loops import settler, sweeper
from windlass.worker.loops.keeper import Keeper

SMALL = Plan(jobs=120, seconds=15.0)
TINY = Plan(jobs=60, seconds=10.0, quick=0.3, cancels=0.3, lease=1.0, pause=0.7)
# Frozen workers continue and still send calls.
STALE_WORKERS = replace(
    TINY, jobs=100, quick=0.0, cancels=0.0, workers=4, lease=0.5, pause=0.4, faults=("freeze",)
)
LATE_REQUESTS = replace(TINY, jobs=150, workers=2, slots=2, faults=("late",))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "windlass")  # workers log every fault


def violations(simulation: SimulationRun) -> list[str]:
    return asyncio.run(check(simulation))


def calls(simulation: SimulationRun, kind: Kind) -> Iterator[Call]:
    return (
        call for calls_ in simulation.history.calls.values() for call in calls_ if call.kind is kind
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_run_with_all_faults_loses_and_repeats_nothing(seed: int) -> None:
    simulation = simulate(seed, SMALL)
    assert violations(simulation) == []
    assert len(simulation.acknowledged) == SMALL.jobs
    assert set(simulation.faults) == set(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_with_faults_of_one_kind_is_correct(fault: str) -> None:
    assert violations(simulate(1, replace(SMALL, faults=(fault,)))) == []


def test_without_a_fault_no_attempt_is_lost() -> None:
    simulation = simulate(2, replace(SMALL, faults=(), lease=0.5))
    assert violations(simulation) == []


@pytest.mark.slow
def test_a_seed_repeats_the_same_run() -> None:
    first, again, other = (simulate(seed, SMALL) for seed in (5, 5, 6))
    assert first.tasks.ledger == again.tasks.ledger
    assert (first.world.steps, first.history.calls) == (again.world.steps, again.history.calls)
    assert first.tasks.ledger != other.tasks.ledger


def test_a_dead_workers_jobs_are_claimable_within_a_lease_and_two_seconds() -> None:
    """`lost_job_was_claimable_in_time` checks every rescue after a kill."""
    simulation = simulate(3, replace(SMALL, faults=("kill",), pause=0.7))
    assert violations(simulation) == []
    assert simulation.faults["kill"] > 10


def test_the_figures_of_all_runs_are_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "figures.json"
    monkeypatch.setattr(
        command, "run_one", lambda *_: command.Totals(20, 1, faults=Counter(late=3))
    )
    monkeypatch.setattr(command, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(sys, "argv", ["simulation", "--runs", "2", "--json", str(file)])
    command.main()
    figures = json.loads(file.read_text())
    assert (figures["jobs"], figures["runs"], figures["faults"]) == (40, 2, {"late": 6})


# -- rare schedules; the planted bugs that these must show: tests/planted_bugs/bugs/simulation.py


@pytest.mark.slow
def test_a_stale_worker_cannot_write_records_in_the_simulation() -> None:
    runs = [simulate(seed, STALE_WORKERS) for seed in range(4)]
    assert [violation for simulation in runs for violation in violations(simulation)] == []
    assert any(
        call.answer == "stale" for simulation in runs for call in calls(simulation, Kind.RECORD)
    )


def test_the_final_row_of_each_job_follows_from_the_call_results() -> None:
    simulation = simulate(7, TINY)
    assert violations(simulation) == []
    assert all(calls_[-1].kind is Kind.READ for calls_ in simulation.history.calls.values())


@pytest.mark.slow
def test_requests_that_arrive_after_their_sender_gave_up_lose_nothing() -> None:
    runs = [simulate(seed, LATE_REQUESTS) for seed in range(3)]
    assert [violation for simulation in runs for violation in violations(simulation)] == []
    assert any(claims_without_a_worker(simulation) for simulation in runs)


def claims_without_a_worker(simulation: SimulationRun) -> set[tuple[UUID, int]]:
    """Return claims that arrived so late that no worker received them before lease expiry."""
    started = {(line.job, line.fence) for line in simulation.tasks.ledger}
    rescued = {
        (job, call.fence)
        for job, calls_ in simulation.history.calls.items()
        for call in calls_
        if call.kind is Kind.RESCUE and call.answer == "applied"
    }
    return rescued - started


def test_a_late_request_arrives_after_the_timeout_of_its_sender() -> None:
    """For every verb. The history has the unreceived result, and it is checked, too."""
    world = World(1)
    network, history = Network(world), CallHistory(lambda: world.now)
    network.late = 1.0
    store = RemoteStore(HistoryRecordingStore(MemoryStore(), history), network, Connection())
    job, token = make_job(), uuid7()
    lease = Lease(job.id, 1, token)
    done = Transition(job_id=job.id, fence=1, token=token, trigger=Trigger.SUCCEED)
    recorded = history.calls[job.id]

    async def send_all() -> None:
        for number, call in enumerate(
            (
                store.enqueue([job]),
                store.claim(Claim(token=token, worker="w", queues=[("default", 1)])),
                store.extend([lease], 10),
                store.record([AttemptRecords(lease, [])]),
                store.apply([CancelRequest(job_id=job.id)]),
                store.apply([done]),
            )
        ):
            with pytest.raises(StoreUnavailableError, match="timed out"):
                await call
            assert len(recorded) == number
            await asyncio.sleep(LATE + 1)
            assert len(recorded) == number + 1

    world.run(send_all(), world.loop())
    world.close_dead(world.loops)
    assert [call.kind for call in recorded] == [
        *(Kind.ENQUEUE, Kind.CLAIM, Kind.EXTEND, Kind.RECORD, Kind.CANCEL, Kind.SETTLE)
    ]
    assert [call.answer for call in recorded] == 6 * ["applied"]
    assert history.explain_violation(job.id) is None


# -- planted bugs


class RepeatsRecords(broken_stores.Broken):
    """A record repeated after a lost response is stored again."""

    def _record(self, entry: AttemptRecords) -> ApplyResult:
        row = self._data.jobs[entry.lease.job_id]
        self._data.jobs[row.id] = replace(row, last_record=0)
        return super()._record(entry)


@pytest.mark.slow
@pytest.mark.parametrize(
    "store",
    [
        broken_stores.SettlesByIdOnly,
        broken_stores.ClaimsTwice,
        broken_stores.SkipsNumbers,
        broken_stores.LetsSuccessWin,
        broken_stores.RejectsRepeats,
        RepeatsRecords,
    ],
)
def test_a_bug_in_the_store_is_detected(store: Callable[..., Store]) -> None:
    assert any(violations(simulate(seed, TINY, store)) for seed in range(12))


def _release_counts_as_a_failure(patch: pytest.MonkeyPatch) -> None:
    """A released job loses an attempt."""

    def counting(job: JobRow, outcome: Outcome, **more: Any) -> Transition:
        failed = Failed(failure=make_failure("stopped"))
        return settle(job, failed if isinstance(outcome, Released) else outcome, **more)

    patch.setattr(settler, "settle", counting)


def _sweeper_stops_at_an_error(patch: pytest.MonkeyPatch) -> None:
    """The sweeper stops after its first error."""

    async def run(self: sweeper.Sweeper) -> None:
        try:
            while True:
                await self.once()
                await asyncio.sleep(self._interval)
        except Exception:  # noqa: BLE001 - the planted bug
            return

    patch.setattr(sweeper.Sweeper, "run", run)


def _keeper_extends_nothing(patch: pytest.MonkeyPatch) -> None:
    """The keeper extends no lease."""
    patch.setattr(Keeper, "hold_all", lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "faults"),
    [
        (_release_counts_as_a_failure, ("stop",)),
        (_sweeper_stops_at_an_error, ("network",)),
        (_keeper_extends_nothing, ()),
    ],
)
def test_a_bug_in_the_worker_is_detected(
    plant: Callable[[pytest.MonkeyPatch], None],
    faults: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = replace(TINY, faults=faults, lease=1.0, quiet_timeout=60.0)
    assert all(violations(simulate(seed, plan)) == [] for seed in range(2))
    plant(monkeypatch)
    assert any(violations(simulate(seed, plan)) for seed in range(12))
