from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windlass.bench.plan import Plan
from windlass.bench.results import ComparisonResult, SystemResult
from windlass.bench.round_result import RoundResult, RunCheck
from windlass.bench.targets import SQLITE_TARGETS
from windlass.cli import cli
from windlass.cli.bench_table import show

QUICK = ["bench", "--quick", "--jobs", "200", "--only", "drain,bulk", "--rounds", "1"]


def test_a_run_gives_a_table_and_json_with_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    arguments = ["--peers", "litequeue", "--json", str(file), "--directory", str(tmp_path / "disk")]
    done = CliRunner().invoke(cli, [*QUICK, *arguments])
    assert done.exit_code == 0, done.output
    assert "enqueue in bulk" in done.stdout
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


def test_the_table_shows_ratios_targets_problems_and_skipped_peers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check = RunCheck(jobs=5, missing=0, twice=2)
    show(result_of(RoundResult({"drain": 90.0}), RoundResult({"drain": 10.0}, check=check)))
    shown = capsys.readouterr().out
    assert "9.0x" in shown
    assert "reached" in shown
    assert "of 5 jobs 2 ran twice" in shown
    assert "litequeue skipped: not installed" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "drain,speed"], "--only: unknown speed; use single"),
        (["--peers", "celery"], "unknown --peers celery; choose from huey"),
        (["--url", "sqlite:///jobs.db"], "use postgresql://user@host/database"),
        (["--url", "postgresql:///x", "--peers", "huey"], "--peers work with SQLite only"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--rounds", "-1"], "--rounds is -1"),
        (["--json", "/no/such/place/file"], "the directory does not exist"),
        (["--directory", "/proc/nothing"], "set --directory"),
    ],
)
def test_an_invalid_option_is_rejected_before_the_run(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["bench", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_an_unreachable_server_is_named_in_the_error() -> None:
    done = CliRunner().invoke(cli, ["bench", "--url", "postgresql://127.0.0.1:1/x"])
    assert done.exit_code == 3
    assert "cannot reach a PostgreSQL server at 127.0.0.1" in " ".join(done.stderr.split())


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
    arguments = ["--only", "idle", "--peers", "", "--directory", str(disk)]
    bench = subprocess.Popen(
        [sys.executable, "-m", "windlass", "bench", *arguments],
        cwd=tmp_path,
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
