"""`windlass worker`: a real process, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 30.0


def wait_for(path: Path) -> None:
    """For what another process does, there is nothing to await but its trace."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


@pytest.fixture
def start(place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "worker", *words],
            cwd=place,
            env=os.environ.copy(),
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_burst_runs_what_there_is_and_says_what_it_did(call: Any, put: Any, ask: Any) -> None:
    job = put("add", a=1, b=2, run=False)
    done = call("worker", "tasks:app", "--burst", "-Q", "default=3")
    assert done.returncode == 0, done.stderr
    assert "queues  default=3" in done.stderr
    assert "tasks.add" in done.stderr
    assert "attempts ended: 1 succeeded" in done.stderr
    assert ask("jobs", "show", job, "--json").json["result"] == 3


def test_a_worker_ends_after_so_many_jobs(call: Any, put: Any, ask: Any) -> None:
    jobs = [put("add", a=n, run=False) for n in range(3)]
    done = call("worker", "tasks:app", "--max-jobs", "2", "--concurrency", "1")
    assert done.returncode == 0, done.stderr
    assert "attempts ended: 2 succeeded" in done.stderr
    states = [ask("jobs", "show", job, "--json").json["state"] for job in jobs]
    assert states == ["succeeded", "succeeded", "queued"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_lets_its_running_job_finish(
    start: Any, put: Any, ask: Any, place: Path, number: int
) -> None:
    job = put("until_file", started="started", go="go", run=False)
    waiting = None
    worker = start("tasks:app", "--concurrency", "1")
    wait_for(place / "started")
    worker.send_signal(number)
    for line in worker.stderr:
        if line.startswith("stopping"):
            waiting = put("add", a=1, run=False)
            (place / "go").touch()
    assert worker.wait(PATIENCE) == 0
    facts = ask("jobs", "show", job, "--json").json
    assert (facts["state"], facts["result"], facts["attempt"]) == ("succeeded", "finished", 1)
    assert ask("jobs", "show", waiting, "--json").json["state"] == "queued"


def test_the_second_signal_gives_the_running_job_back_uncounted(
    start: Any, put: Any, ask: Any, place: Path
) -> None:
    job = put("until_file", started="started", go="never", run=False)
    worker = start("tasks:app", "--grace", "1h")
    wait_for(place / "started")
    worker.send_signal(signal.SIGTERM)
    said = []
    for line in worker.stderr:
        said.append(line)
        if line.startswith("stopping: "):
            worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert "1 given back" in said[-1]
    facts = ask("jobs", "show", job, "--json").json
    assert (facts["state"], facts["retryCount"], facts["crashCount"]) == ("queued", 0, 0)


def test_a_worker_waits_no_longer_than_its_grace(
    start: Any, put: Any, ask: Any, place: Path
) -> None:
    job = put("until_file", started="started", go="never", run=False)
    worker = start("tasks:app", "--grace", "50ms")
    wait_for(place / "started")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert ask("jobs", "show", job, "--json").json["state"] == "queued"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nosuch:app"], "no module 'nosuch' here"),
        (["tasks.py"], "name its module: tasks:app"),
        (["tasks:nothing"], "has no 'nothing'; it has tasks:app"),
        (["tasks:other"], "tasks:other is 5, not a Windlass app; it has tasks:app"),
        (["ta sks:app"], "is not of the form module:app"),
        (["bad:app"], "importing 'bad' failed: ZeroDivisionError: division by zero"),
        (["needy:app"], "importing 'needy' failed: ModuleNotFoundError: No module named 'gone'"),
        (["empty:app"], "the module holds no Windlass app"),
        ([], "no application is named"),
        (["tasks:app", "-Q", "media=none"], "the slots of queue 'media' is 'none'"),
        (["tasks:app", "-Q", "a=1,a=2"], "write each queue once"),
        (["tasks:app", "--lease", "soon"], "lease is 'soon'"),
    ],
)
def test_a_worker_that_cannot_start_says_why(
    call: Any, place: Path, words: list[str], told: str
) -> None:
    (place / "bad.py").write_text("1 / 0\n")
    (place / "needy.py").write_text("import gone\n")
    (place / "empty.py").write_text("")
    done = call("worker", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_in_the_wrong_directory_is_told_the_right_one(call: Any, place: Path) -> None:
    (place / "inner").mkdir()
    (place / "inner" / "mine.py").write_text("")
    done = call("worker", "mine:app")
    assert done.returncode == 2
    assert f"it is in {place / 'inner'}" in done.stderr


def test_a_new_file_a_queue_left_alone_and_memory_are_warned_of(call: Any, place: Path) -> None:
    fresh = call("worker", "tasks:app", "--burst", "-Q", "media")
    assert f"{place}/windlass.db is new and empty" in fresh.stderr
    assert "use the queues default, which this worker leaves alone" in fresh.stderr
    assert "queues  media=10" in fresh.stderr
    memory = call("worker", "tasks:app", "--burst", WINDLASS_URL="memory:")
    assert "memory: is seen by this process only" in memory.stderr


def test_a_store_that_cannot_be_reached_is_exit_code_three(call: Any) -> None:
    done = call("worker", "tasks:app", WINDLASS_URL="sqlite:////nowhere/at/all.db")
    assert done.returncode == 3
    assert "cannot open /nowhere/at/all.db" in done.stderr
