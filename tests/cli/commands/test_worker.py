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

from windlass.cli.commands.worker import worker_config
from windlass.cli.worker_process.worker_recycler import memory_used
from windlass.settings import load_settings

PATIENCE = 30.0


def wait_for(path: Path) -> None:
    """Poll for an effect of another process."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
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


def test_a_burst_runs_all_jobs_and_prints_the_counts(call: Any, put: Any, ask: Any) -> None:
    job = put("add", a=1, b=2, run=False)
    done = call("worker", "tasks:app", "--burst", "-Q", "default=3")
    assert done.returncode == 0, done.stderr
    assert "queues  default=3" in done.stderr
    assert "tasks.add" in done.stderr
    assert "processed: 1 succeeded" in done.stderr
    assert ask("jobs", "show", job, "--json").json["result"] == 3


def test_a_worker_ends_after_so_many_jobs(call: Any, put: Any, ask: Any) -> None:
    jobs = [put("add", a=n, run=False) for n in range(3)]
    done = call("worker", "tasks:app", "--max-jobs", "2", "--concurrency", "1")
    assert done.returncode == 0, done.stderr
    assert "processed: 2 succeeded" in done.stderr
    states = [ask("jobs", "show", job, "--json").json["state"] for job in jobs]
    assert states == ["succeeded", "succeeded", "queued"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGHUP]
)
def test_a_stopped_worker_lets_its_running_job_finish(
    start: Any, put: Any, ask: Any, place: Path, number: int
) -> None:
    job = put("until_file", started="started", go="go", run=False)
    waiting = None
    worker = start("tasks:app", "--concurrency", "1")
    wait_for(place / "started")
    worker.send_signal(number)
    for line in worker.stderr:
        if line.startswith("Shutting down"):
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
    lines = []
    for line in worker.stderr:
        lines.append(line)
        if line.startswith("Shutting down: "):
            worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert "1 requeued" in lines[-1]
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
    ("words", "message"),
    [
        (["nosuch:app"], "no module 'nosuch' in"),
        (["tasks.py"], "give its module: tasks:app"),
        (["tasks:nothing"], "has no 'nothing'; it has tasks:app"),
        (["tasks:other"], "tasks:other is 5, not a Windlass app; it has tasks:app"),
        (["ta sks:app"], "does not have the form module:app"),
        (["bad:app"], "importing 'bad' failed: ZeroDivisionError: division by zero"),
        (["needy:app"], "importing 'needy' failed: ModuleNotFoundError: No module named 'gone'"),
        (["empty:app"], "the module has no Windlass app"),
        ([], "no app given"),
        (["tasks:app", "-Q", "media=none"], "the slots of queue 'media' is 'none'"),
        (["tasks:app", "-Q", "a=1,a=2"], "write each queue once"),
        (["tasks:app", "--lease", "soon"], "lease is 'soon'"),
    ],
)
def test_a_worker_that_cannot_start_prints_why(
    ask: Any, place: Path, words: list[str], message: str
) -> None:
    (place / "bad.py").write_text("1 / 0\n")
    (place / "needy.py").write_text("import gone\n")
    (place / "empty.py").write_text("")
    done = ask("worker", *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_worker_in_the_wrong_directory_suggests_the_right_one(ask: Any, place: Path) -> None:
    (place / "inner").mkdir()
    (place / "inner" / "mine.py").write_text("")
    done = ask("worker", "mine:app")
    assert done.code == 2
    assert f"it is in {place / 'inner'}" in done.err


def test_a_new_file_a_queue_left_alone_and_memory_are_warned_of(call: Any, place: Path) -> None:
    fresh = call("worker", "tasks:app", "--burst", "-Q", "media")
    assert f"{place}/windlass.db does not exist yet" in fresh.stderr
    assert "this worker does not consume queues default" in fresh.stderr
    assert "queues  media=10" in fresh.stderr
    memory = call("worker", "tasks:app", "--burst", WINDLASS_URL="memory:")
    assert "memory: jobs are visible only in this process" in memory.stderr


def test_a_store_that_cannot_be_reached_is_exit_code_three(call: Any) -> None:
    done = call("worker", "tasks:app", WINDLASS_URL="sqlite:////nowhere/at/all.db")
    assert done.returncode == 3
    assert "cannot open /nowhere/at/all.db" in done.stderr


# -- shutdown has a time limit

STUBBORN = """
import asyncio, time
from functools import partial
from pathlib import Path
from windlass import Windlass, WorkerConfig
from windlass.cli import shutdown
from windlass.cli.commands import worker

shutdown.FORCE_TIMEOUT = 0.2  # seconds
shutdown.STORE_TIMEOUT = 30
worker.WorkerConfig = partial(WorkerConfig, release_timeout=0.2)
app = Windlass()

@app.task
async def blocks() -> None:
    Path("started").touch()
    time.sleep(600)

@app.task
def sleeps() -> None:
    Path("started").touch()
    time.sleep(600)

@app.task
async def refuses() -> None:
    Path("started").touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""


@pytest.mark.parametrize(
    "case",
    [
        ("blocks", 1),
        ("blocks", 2),
        ("blocks", 3),
        ("sleeps", 2),
        ("refuses", 2),
    ],
)
def test_a_worker_ends_whatever_its_tasks_do_and_names_what_it_leaves(
    start: Any, put_named: Any, ask: Any, place: Path, case: tuple[str, int]
) -> None:
    task, signals = case
    (place / "stubborn.py").write_text(STUBBORN)
    job = put_named(f"stubborn.{task}")
    worker = start("stubborn:app", "--grace", "1h" if signals > 1 else "100ms")
    wait_for(place / "started")
    lines = []
    worker.send_signal(signal.SIGTERM)
    for line in worker.stderr:
        lines.append(line)
        if line.startswith("Shutting down: ") and signals > 1:
            worker.send_signal(signal.SIGTERM)
        if line.startswith("Forced shutdown") and signals > 2:
            worker.send_signal(signal.SIGINT)
    assert worker.wait(PATIENCE) in {0, 1}
    state = ask("jobs", "show", job, "--json").json["state"]
    if worker.returncode == 1:
        assert "did not stop in time and exits now" in lines[-1]
        assert state == "running"
    else:  # the worker itself gave up on the task
        assert state in {"queued", "running"}
    if task == "blocks":
        assert worker.returncode == 1
        assert f"will be retried after lease expiry: {job} (stubborn.blocks)" in lines[-1]


LASTING = """
from collections.abc import AsyncIterator
from pathlib import Path
from windlass import Windlass

app = Windlass()

@app.lifespan
async def life() -> AsyncIterator[None]:
    Path("up").touch()
    try:
        yield
    finally:
        raise OSError("the pool is stuck")
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_a_lifespan_that_fails_at_shutdown_is_one_message(
    start: Any, place: Path, signals: int
) -> None:
    (place / "lasting.py").write_text(LASTING)
    worker = start("lasting:app", "--grace", "1h")
    wait_for(place / "up")
    worker.send_signal(signal.SIGTERM)
    if signals == 2:
        worker.send_signal(signal.SIGINT)
    lines = list(worker.stderr)
    worker.wait(PATIENCE)
    assert any("the pool is stuck" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


def wait_for_line(worker: subprocess.Popen[str], words: str) -> str:
    assert worker.stderr is not None
    for line in worker.stderr:
        if words in line:
            return line
    raise AssertionError(f"{words!r} did not appear")


# -- limits


def test_unknown_tasks_and_bad_payloads_count_as_attempts(call: Any, put: Any, ask: Any) -> None:
    jobs = [put("add", a=1, run=False), put("greet", name="x", run=False)]
    done = call("worker", "lean:app", "--max-jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "exits: processed 2 attempts (--max-jobs)" in done.stderr
    states = [ask("jobs", "show", job, "--json").json["state"] for job in jobs]
    assert states == ["retrying", "failed"]


@pytest.fixture(autouse=True)
def lean(place: Path) -> None:
    """An app without `add`, and with other arguments of `greet`."""
    (place / "lean.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass()\n"
        "@app.task(name='tasks.greet', max_retries=0)\n"
        "def greet(number: int) -> None: ...\n"
    )


GREEDY = """
from windlass import Windlass

app = Windlass()
kept = []

@app.task
async def grow(mib: int) -> None:
    kept.append(b"x" * mib * 2**20)
"""


def test_a_worker_that_grows_too_large_ends_itself(call: Any, ask: Any, place: Path) -> None:
    (place / "greedy.py").write_text(GREEDY)
    ask("enqueue", "grow", "mib=300", "-A", "greedy:app")
    done = call("worker", "greedy:app", "--max-memory", "300M")
    assert done.returncode == 0, done.stderr
    assert "MiB, limit 300 MiB (--max-memory)" in done.stderr
    assert "processed: 1 succeeded" in done.stderr


def test_a_limit_below_what_a_worker_needs_is_refused(call: Any) -> None:
    done = call("worker", "tasks:app", "--max-memory", "1M")
    assert done.returncode == 2
    assert "before its first job, but --max-memory is 1 MiB; raise the limit" in done.stderr


def test_the_memory_of_children_counts() -> None:
    before = memory_used()
    program = "kept = b'x' * 50 * 2**20; print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        grown = memory_used() - before
        child.communicate(b"\n")
    assert grown > 50 * 2**20


# -- several processes


@pytest.mark.slow
def test_a_burst_of_several_processes_recycles_them_and_ends_with_zero(
    call: Any, put: Any, ask: Any
) -> None:
    jobs = [put("add", a=n, run=False) for n in range(3)]
    done = call(
        "worker", "tasks:app", "--processes", "2", "--burst", "--max-jobs", "1",
        "--concurrency", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Supervising 2 worker processes for tasks:app" in done.stderr
    assert "reached its limit and is replaced" in done.stderr
    assert "All workers stopped" in done.stderr
    states = {ask("jobs", "show", job, "--json").json["state"] for job in jobs}
    assert states == {"succeeded"}


@pytest.mark.slow
def test_a_stopped_supervisor_lets_running_jobs_finish(
    start: Any, put: Any, ask: Any, place: Path
) -> None:
    (place / "windlass.toml").write_text('processes = 2\napp = "tasks:app"\n')
    job = put("until_file", started="started", go="go", run=False)
    supervisor = start()
    wait_for(place / "started")
    supervisor.send_signal(signal.SIGINT)
    wait_for_line(supervisor, "Shutting down all workers")
    (place / "go").touch()
    supervisor.stderr.read()
    assert supervisor.wait(PATIENCE) == 0
    facts = ask("jobs", "show", job, "--json").json
    assert (facts["state"], facts["attempt"]) == ("succeeded", 1)


@pytest.mark.slow
def test_a_wrong_app_ends_the_supervisor_with_its_code(call: Any) -> None:
    done = call("worker", "nosuch:app", "--processes", "2")
    assert done.returncode == 2
    assert "no module 'nosuch' in" in done.stderr
    assert "Traceback" not in done.stderr


def test_retention_follows_the_settings(place: Path) -> None:
    (place / "windlass.toml").write_text('keep_succeeded = "1d"\nkeep_failed = 0\n')
    retention = worker_config(load_settings()).retention
    day = 86_400
    kept = (retention.succeeded, retention.canceled, retention.failed, retention.log)
    assert kept == (day, 30 * day, 0, 30 * day)
