from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.peers.__main__ import main
from benchmarks.peers.plan import Plan
from benchmarks.peers.queue_adapter import ROOT
from benchmarks.peers.results import ComparisonResult, SystemResult
from benchmarks.peers.results_table import show_columns, show_rows
from benchmarks.peers.round_result import RoundResult, RunCheck
from benchmarks.peers.targets import SQLITE_TARGETS

QUICK = ["--sqlite", "--quick", "--jobs", "200", "--only", "drain,bulk", "--rounds", "1"]


def test_a_run_gives_a_table_and_json_with_every_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    arguments = ["--peers", "litequeue", "--json", str(file), "--directory", str(tmp_path / "disk")]
    main([*QUICK, *arguments])
    assert "enqueue in bulk" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert set(found) == {"machine", "settings", "systems", "skipped", "ratios", "targets"}
    assert {"python", "sqlite", "cores", "uvloop", "at"} <= set(found["machine"])
    assert found["settings"]["jobs"] == 200
    assert set(found["systems"]) | set(found["skipped"]) == {"windlass", "litequeue"}
    windlass = found["systems"]["windlass"]
    assert windlass["exactly_once"] is True
    assert "FULL" in windlass["durability"]
    assert set(windlass["figures"]) == {"bulk", "drain"}
    assert windlass["figures"]["drain"]["rounds"] == [windlass["figures"]["drain"]["median"]]
    [round_] = windlass["rounds"]
    assert round_["check"] == {"jobs": 200, "missing": 0, "twice": 0}
    if "litequeue" in found["systems"]:
        assert set(found["ratios"]["bulk"]) == {"litequeue"}
    assert list((tmp_path / "disk").iterdir()) == []


def result_of(windlass: RoundResult, huey: RoundResult) -> ComparisonResult:
    plan = Plan.of(quick=True)
    machine = {"cores": 2, "python": "3", "uvloop": None}
    systems = {
        name: SystemResult("1", "FULL", None, rounds=[round_])
        for name, round_ in (("windlass", windlass), ("huey", huey))
    }
    return ComparisonResult(plan, machine, SQLITE_TARGETS, systems, {"litequeue": "not installed"})


def test_a_target_is_reached_missed_or_not_measured() -> None:
    result = result_of(RoundResult({"drain": 70.0, "idle": 0.5}), RoundResult({"drain": 10.0}))
    found = {target.text.split()[0]: target.reached for target in result.target_results()}
    assert found == {"drain": False, "idle": True, "bulk": None, "latency": None, "worker": None}


@pytest.mark.parametrize(("show", "ratio"), [(show_columns, "9.0x"), (show_rows, "9.00x")])
def test_the_table_shows_ratios_targets_problems_and_skipped_peers(
    show: Callable[[ComparisonResult], None], ratio: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check = RunCheck(jobs=5, missing=0, twice=2)
    show(result_of(RoundResult({"drain": 90.0}), RoundResult({"drain": 10.0}, check=check)))
    shown = capsys.readouterr().out
    assert ratio in shown
    assert "reached" in shown
    assert "of 5 jobs 2 ran twice" in shown
    assert "litequeue skipped: not installed" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sqlite", "--only", "drain,speed"], "--only: unknown speed; use single"),
        (["--sqlite", "--peers", "celery"], "unknown --peers celery; choose from huey"),
        (["--peers", "litequeue"], "unknown --peers litequeue; choose from bare"),
        (["--url", "sqlite:///jobs.db"], "use postgresql://user@host/database"),
        (["--sqlite", "--url", "postgresql:///x"], "remove it, or --sqlite"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--rounds", "-1"], "--rounds is -1"),
        (["--json", "/no/such/place/file"], "the directory does not exist"),
        (["--directory", "/proc/nothing"], "set --directory"),
        (["--url", "postgresql://127.0.0.1:1/x"], "cannot reach a PostgreSQL server at 127.0.0.1"),
    ],
)
def test_an_invalid_option_is_rejected_before_the_run(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def processes_in(directory: Path) -> list[int]:
    """Return the processes whose working directory is below this one."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "code", "cleans_up"),
    [
        (signal.SIGINT, 130, True),
        pytest.param(signal.SIGTERM, 143, True, marks=pytest.mark.slow),
        (signal.SIGKILL, -9, False),
    ],
)
def test_no_process_outlives_an_interrupted_run(
    number: signal.Signals, code: int, cleans_up: bool, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = ["--sqlite", "--only", "idle", "--peers", "", "--directory", str(disk)]
    bench = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers", *arguments],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while len(pids := processes_in(disk)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)  # no event for a process that another one starts
        assert len(pids) == 2  # a worker and a producer
        handles = [os.pidfd_open(pid) for pid in pids]
        bench.send_signal(number)
        assert bench.wait(60) == code
        for handle in handles:
            assert select.select([handle], [], [], 60)[0]
            os.close(handle)
        assert processes_in(disk) == []
        assert (list(disk.iterdir()) == []) is cleans_up
    finally:
        bench.kill()
        bench.wait()
