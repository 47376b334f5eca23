from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.bench.conftest import Run

from windlass.bench.bench_run import measure
from windlass.bench.peers import OURS_ON_POSTGRES, PEERS, load
from windlass.bench.plan import Plan

pytestmark = pytest.mark.slow

DRAIN = Plan(jobs=20, rounds=1, only=("single", "together", "bulk", "drain", "memory"))
WAIT = Plan(
    jobs=1, rounds=1, only=("latency", "idle"), pause=0.3, idle=0.2, gap=0.02, starts=3, quick=True
)


def test_every_round_of_a_side_is_kept_beside_its_median(run: Run) -> None:
    plan = Plan(jobs=20, rounds=3, only=("drain",))
    side = run(plan, "files").sides["files"]
    assert len(side.rounds) == 3
    values = side.values("drain")
    assert side.median("drain") == sorted(values)[1]
    assert side.to_json()["figures"]["drain"]["rounds"] == values


def test_a_side_that_runs_each_job_once_is_reported_so(run: Run) -> None:
    side = run(DRAIN, "files").sides["files"]
    assert side.exactly_once
    assert side.problems == []


def test_a_side_that_runs_a_job_twice_is_caught(run: Run) -> None:
    side = run(DRAIN, "twice").sides["twice"]
    assert not side.exactly_once
    assert side.problems == ["of 20 jobs 1 ran twice"]
    assert side.to_json()["exactly_once"] is False


def test_a_side_that_runs_a_job_again_when_all_are_done_is_caught(run: Run) -> None:
    assert run(DRAIN, "late").sides["late"].problems == ["of 20 jobs 1 ran twice"]


def test_a_failed_side_is_reported_and_the_others_are_measured(run: Run) -> None:
    result = run(DRAIN, "dies", "files")
    [problem] = result.sides["dies"].problems
    assert "the disk is made of cheese" in problem
    assert not result.sides["dies"].exactly_once
    assert result.sides["files"].exactly_once


def test_a_peer_that_is_not_installed_is_skipped_with_a_reason(run: Run) -> None:
    result = run(DRAIN, "absent", "files")
    assert list(result.sides) == ["files"]
    assert result.skipped == {"absent": "not installed: pip install no-such-package"}


def test_a_side_without_its_server_is_skipped_with_a_reason(tmp_path: Path) -> None:
    result = measure(DRAIN, tmp_path, lambda *_: None, {"windlass": OURS_ON_POSTGRES})
    assert result.skipped == {"windlass": "no postgresql server"}


def test_a_job_that_two_workers_run_is_caught(run: Run) -> None:
    plan = Plan(jobs=20, rounds=1, only=("pair",))
    assert run(plan, "files").sides["files"].problems == ["of 20 jobs 20 ran twice"]


def test_two_workers_share_their_jobs(tmp_path: Path) -> None:
    plan = Plan(jobs=50, rounds=1, only=("pair",))
    result = measure(plan, tmp_path, lambda *_: None, {"windlass": PEERS["windlass"]})
    assert result.sides["windlass"].exactly_once
    assert set(result.sides["windlass"].rounds[0].figures) == {"pair"}


def test_a_drain_lasts_until_every_job_is_settled(run: Run) -> None:
    """Its worker settles half a second after the last job, and the queue counts until then."""
    side = run(Plan(jobs=40, rounds=1, only=("drain",)), "tardy").sides["tardy"]
    assert side.exactly_once
    assert 0 < (side.median("drain") or 0) <= 20 / 0.5


def test_a_slow_side_gets_a_share_of_the_jobs(run: Run) -> None:
    [noted] = run(Plan(jobs=40, rounds=1, only=("drain",)), "tardy").sides["tardy"].rounds
    assert noted.check is not None
    assert noted.check.jobs == 20


def test_the_sides_alternate(run: Run, tmp_path: Path) -> None:
    reported: list[str] = []
    modules = dict.fromkeys(("one", "two"), "tests.bench.sides.files")
    plan = Plan(jobs=2, rounds=2, only=("drain",))
    measure(plan, tmp_path, lambda text, *_: reported.append(text), modules)
    assert [text.split(": ")[1].split()[0] for text in reported[:-1]] == [
        "one",
        "two",
        "two",
        "one",
    ]


def test_nothing_is_left_of_a_run(run: Run, tmp_path: Path) -> None:
    run(DRAIN, "files", "dies")
    assert list(tmp_path.iterdir()) == []


def test_a_job_starts_after_it_is_put_in_and_each_start_is_noted(run: Run) -> None:
    side = run(WAIT, "files").sides["files"]
    [noted] = side.rounds
    assert side.exactly_once
    assert len(noted.latencies_ms) == 3
    assert min(noted.latencies_ms) > 0
    assert noted.figures["latency_p50"] <= noted.figures["latency_p99"]


def test_a_side_without_a_bulk_way_has_no_bulk_figure(run: Run) -> None:
    side = run(DRAIN, "singly").sides["singly"]
    assert side.exactly_once
    assert set(side.rounds[0].figures) >= {"single", "drain"}
    assert side.median("bulk") is None


@pytest.mark.parametrize("name", PEERS)
def test_each_side_runs_its_jobs_once_and_gives_every_figure(name: str, tmp_path: Path) -> None:
    side = load(PEERS[name])
    pytest.importorskip(side.library)
    for plan, keys in (
        (DRAIN, {"single", "drain"} | {way for way in ("bulk", "together") if getattr(side, way)}),
        (WAIT, {"latency_p50", "latency_p99"}),
    ):
        place = tmp_path / str(plan.waiting)
        place.mkdir()
        found = measure(plan, place, lambda *_: None, {name: PEERS[name]}).sides[name]
        assert found.problems == []
        assert keys <= set(found.rounds[0].figures)


def test_what_a_user_has_set_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "windlass.toml").write_text("[queues]\nother = 1\n")
    monkeypatch.setenv("WINDLASS_QUEUES", "another=1")
    monkeypatch.setenv("WINDLASS_URL", "memory:")
    plan = Plan(jobs=5, rounds=1, only=("drain",))
    result = measure(plan, tmp_path, lambda *_: None, {"windlass": PEERS["windlass"]})
    assert result.sides["windlass"].exactly_once


def test_a_peer_does_not_carry_the_weight_of_windlass(run: Run) -> None:
    """By what its worker process has loaded."""
    side = run(Plan(jobs=2, rounds=1, only=("drain",)), "weighed").sides["weighed"]
    [problem] = side.problems
    loaded = json.loads(problem.partition("loaded ")[2])
    assert "windlass.bench.job_ledger" in loaded
    assert not {"pydantic", "asyncio", "apsw", "rich", "windlass.app"} & set(loaded)
