from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.peers import SERVER_PEERS, SQLITE_PEERS, load
from benchmarks.peers.comparison import compare
from benchmarks.peers.plan import Plan
from tests.benchmarks.conftest import Run

pytestmark = pytest.mark.slow

DRAIN = Plan(jobs=20, rounds=1, only=("single", "concurrent", "bulk", "drain", "memory"))
WAIT = Plan(
    jobs=1, rounds=1, only=("latency", "idle"), pause=0.3, idle=0.2, gap=0.02, starts=3, quick=True
)


def test_a_result_has_every_round_and_their_median(run: Run) -> None:
    plan = Plan(jobs=20, rounds=3, only=("drain",))
    system = run(plan, "file_queue").systems["file_queue"]
    assert len(system.rounds) == 3
    values = system.values("drain")
    assert system.median("drain") == sorted(values)[1]
    assert system.to_json()["figures"]["drain"]["rounds"] == values


def test_a_system_that_runs_each_job_once_has_no_problems(run: Run) -> None:
    system = run(DRAIN, "file_queue").systems["file_queue"]
    assert system.exactly_once
    assert system.problems == []


def test_a_job_that_runs_twice_is_reported(run: Run) -> None:
    system = run(DRAIN, "duplicate_run").systems["duplicate_run"]
    assert not system.exactly_once
    assert system.problems == ["of 20 jobs 1 ran twice"]
    assert system.to_json()["exactly_once"] is False


def test_a_duplicate_run_after_the_last_job_is_reported(run: Run) -> None:
    assert run(DRAIN, "late_duplicate").systems["late_duplicate"].problems == [
        "of 20 jobs 1 ran twice"
    ]


def test_a_failed_system_is_reported_and_the_others_are_measured(run: Run) -> None:
    result = run(DRAIN, "crashing_worker", "file_queue")
    [problem] = result.systems["crashing_worker"].problems
    assert "worker crashed on purpose" in problem
    assert not result.systems["crashing_worker"].exactly_once
    assert result.systems["file_queue"].exactly_once


def test_a_peer_that_is_not_installed_is_skipped_with_a_reason(run: Run) -> None:
    result = run(DRAIN, "not_installed", "file_queue")
    assert list(result.systems) == ["file_queue"]
    assert result.skipped == {"not_installed": "not installed: pip install no-such-package"}


def test_a_system_without_its_server_is_skipped_with_a_reason(tmp_path: Path) -> None:
    result = compare(DRAIN, tmp_path, lambda *_: None, {"windlass": SERVER_PEERS["windlass"]})
    assert result.skipped == {"windlass": "no postgresql server"}


def test_a_job_that_runs_on_two_workers_is_reported(run: Run) -> None:
    plan = Plan(jobs=20, rounds=1, only=("pair",))
    assert run(plan, "file_queue").systems["file_queue"].problems == ["of 20 jobs 20 ran twice"]


def test_two_workers_share_their_jobs(tmp_path: Path) -> None:
    plan = Plan(jobs=50, rounds=1, only=("pair",))
    result = compare(plan, tmp_path, lambda *_: None, {"windlass": SQLITE_PEERS["windlass"]})
    assert result.systems["windlass"].exactly_once
    assert set(result.systems["windlass"].rounds[0].figures) == {"pair"}


def test_a_drain_lasts_until_every_job_is_settled(run: Run) -> None:
    """The worker settles half a second after the last job ran; the drain includes that time."""
    system = run(Plan(jobs=40, rounds=1, only=("drain",)), "late_settle").systems["late_settle"]
    assert system.exactly_once
    assert 0 < (system.median("drain") or 0) <= 20 / 0.5


def test_a_slow_system_gets_only_its_share_of_the_jobs(run: Run) -> None:
    [round_] = (
        run(Plan(jobs=40, rounds=1, only=("drain",)), "late_settle").systems["late_settle"].rounds
    )
    assert round_.check is not None
    assert round_.check.jobs == 20


def test_the_order_of_systems_alternates_between_rounds(run: Run, tmp_path: Path) -> None:
    reported: list[str] = []
    modules = dict.fromkeys(("one", "two"), "tests.benchmarks.adapters.file_queue")
    plan = Plan(jobs=2, rounds=2, only=("drain",))
    compare(plan, tmp_path, lambda text, *_: reported.append(text), modules)
    assert [text.split(": ")[1].split()[0] for text in reported[:-1]] == [
        "one",
        "two",
        "two",
        "one",
    ]


def test_a_run_leaves_no_files(run: Run, tmp_path: Path) -> None:
    run(DRAIN, "file_queue", "crashing_worker")
    assert list(tmp_path.iterdir()) == []


def test_the_latency_of_each_job_is_recorded(run: Run) -> None:
    system = run(WAIT, "file_queue").systems["file_queue"]
    [round_] = system.rounds
    assert system.exactly_once
    assert len(round_.latencies_ms) == 3
    assert min(round_.latencies_ms) > 0
    assert round_.figures["latency_p50"] <= round_.figures["latency_p99"]


def test_a_system_without_bulk_enqueue_has_no_bulk_figure(run: Run) -> None:
    system = run(DRAIN, "no_bulk").systems["no_bulk"]
    assert system.exactly_once
    assert set(system.rounds[0].figures) >= {"single", "drain"}
    assert system.median("bulk") is None


@pytest.mark.parametrize("name", SQLITE_PEERS)
def test_each_system_runs_its_jobs_once_and_has_every_figure(name: str, tmp_path: Path) -> None:
    adapter = load(SQLITE_PEERS[name])
    pytest.importorskip(adapter.library)
    for plan, keys in (
        (
            DRAIN,
            {"single", "drain"}
            | {method for method in ("bulk", "concurrent") if getattr(adapter, method)},
        ),
        (WAIT, {"latency_p50", "latency_p99"}),
    ):
        directory = tmp_path / str(plan.measures_idle_worker)
        directory.mkdir()
        system = compare(plan, directory, lambda *_: None, {name: SQLITE_PEERS[name]}).systems[name]
        assert system.problems == []
        assert keys <= set(system.rounds[0].figures)


def test_settings_of_the_user_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "windlass.toml").write_text("[queues]\nother = 1\n")
    monkeypatch.setenv("WINDLASS_QUEUES", "another=1")
    monkeypatch.setenv("WINDLASS_URL", "memory:")
    plan = Plan(jobs=5, rounds=1, only=("drain",))
    result = compare(plan, tmp_path, lambda *_: None, {"windlass": SQLITE_PEERS["windlass"]})
    assert result.systems["windlass"].exactly_once


def test_a_peer_process_does_not_import_windlass(run: Run) -> None:
    """The worker process reports its loaded modules."""
    system = run(Plan(jobs=2, rounds=1, only=("drain",)), "reports_modules").systems[
        "reports_modules"
    ]
    [problem] = system.problems
    loaded = json.loads(problem.partition("loaded ")[2])
    assert "benchmarks.peers.child.job_ledger" in loaded
    assert not {"pydantic", "asyncio", "apsw", "rich", "windlass"} & set(loaded)
