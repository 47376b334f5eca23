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

WAIT_TIMEOUT = 30.0


def wait_for(path: Path) -> None:
    """Poll for an effect of another process."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


@pytest.fixture
def start_worker(project_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "worker", *words],
            cwd=project_dir,
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


def test_a_burst_runs_all_jobs_and_prints_the_counts(
    run_process: Any, enqueue_job: Any, run_cli: Any
) -> None:
    job = enqueue_job("add", a=1, b=2, run=False)
    done = run_process("worker", "tasks:app", "--burst", "-Q", "default=3")
    assert done.returncode == 0, done.stderr
    assert "queues  default=3" in done.stderr
    assert "tasks.add" in done.stderr
    assert "processed: 1 succeeded" in done.stderr
    assert run_cli("jobs", "show", job, "--json").json["result"] == 3


def test_a_worker_exits_after_max_jobs(run_process: Any, enqueue_job: Any, run_cli: Any) -> None:
    jobs = [enqueue_job("add", a=n, run=False) for n in range(3)]
    done = run_process("worker", "tasks:app", "--max-jobs", "2", "--concurrency", "1")
    assert done.returncode == 0, done.stderr
    assert "processed: 2 succeeded" in done.stderr
    states = [run_cli("jobs", "show", job, "--json").json["state"] for job in jobs]
    assert states == ["succeeded", "succeeded", "queued"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGHUP]
)
def test_a_stopped_worker_lets_its_running_job_finish(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path, number: int
) -> None:
    job = enqueue_job("until_file", started="started", go="go", run=False)
    waiting = None
    worker = start_worker("tasks:app", "--concurrency", "1")
    wait_for(project_dir / "started")
    worker.send_signal(number)
    for line in worker.stderr:
        if line.startswith("Shutting down"):
            waiting = enqueue_job("add", a=1, run=False)
            (project_dir / "go").touch()
    assert worker.wait(WAIT_TIMEOUT) == 0
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["result"], facts["attempt"]) == ("succeeded", "finished", 1)
    assert run_cli("jobs", "show", waiting, "--json").json["state"] == "queued"


def test_the_second_signal_requeues_the_running_job_uncounted(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    job = enqueue_job("until_file", started="started", go="never", run=False)
    worker = start_worker("tasks:app", "--grace", "1h")
    wait_for(project_dir / "started")
    worker.send_signal(signal.SIGTERM)
    lines = []
    for line in worker.stderr:
        lines.append(line)
        if line.startswith("Shutting down: "):
            worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_TIMEOUT) == 0
    assert "1 requeued" in lines[-1]
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["retryCount"], facts["crashCount"]) == ("queued", 0, 0)


def test_a_worker_waits_no_longer_than_its_grace_period(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    job = enqueue_job("until_file", started="started", go="never", run=False)
    worker = start_worker("tasks:app", "--grace", "50ms")
    wait_for(project_dir / "started")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_TIMEOUT) == 0
    assert run_cli("jobs", "show", job, "--json").json["state"] == "queued"


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
    run_cli: Any, project_dir: Path, words: list[str], message: str
) -> None:
    (project_dir / "bad.py").write_text("1 / 0\n")
    (project_dir / "needy.py").write_text("import gone\n")
    (project_dir / "empty.py").write_text("")
    done = run_cli("worker", *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_worker_in_the_wrong_directory_suggests_the_right_one(
    run_cli: Any, project_dir: Path
) -> None:
    (project_dir / "inner").mkdir()
    (project_dir / "inner" / "mine.py").write_text("")
    done = run_cli("worker", "mine:app")
    assert done.code == 2
    assert f"it is in {project_dir / 'inner'}" in done.err


def test_a_worker_warns_of_a_new_file_an_unconsumed_queue_and_a_memory_store(
    run_process: Any, project_dir: Path
) -> None:
    fresh = run_process("worker", "tasks:app", "--burst", "-Q", "media")
    assert f"{project_dir}/windlass.db does not exist yet" in fresh.stderr
    assert "this worker does not consume queues default" in fresh.stderr
    assert "queues  media=10" in fresh.stderr
    memory = run_process("worker", "tasks:app", "--burst", WINDLASS_URL="memory:")
    assert "memory: jobs are visible only in this process" in memory.stderr


def test_an_unavailable_store_is_exit_code_three(run_process: Any) -> None:
    done = run_process("worker", "tasks:app", WINDLASS_URL="sqlite:////nowhere/at/all.db")
    assert done.returncode == 3
    assert "cannot open /nowhere/at/all.db" in done.stderr


# -- shutdown has a time limit

BLOCKING_TASKS = """
import asyncio, time
from functools import partial
from pathlib import Path
from windlass import Windlass, WorkerConfig
from windlass.cli.worker_process import worker_runner
from windlass.cli.commands import worker

worker_runner.FORCE_TIMEOUT = 0.2  # seconds
worker_runner.STORE_TIMEOUT = 30
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
async def ignores_cancel() -> None:
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
        ("ignores_cancel", 2),
    ],
)
def test_a_worker_exits_even_if_its_tasks_block_and_names_their_jobs(
    start_worker: Any, enqueue_by_name: Any, run_cli: Any, project_dir: Path, case: tuple[str, int]
) -> None:
    task, signals = case
    (project_dir / "blocking.py").write_text(BLOCKING_TASKS)
    job = enqueue_by_name(f"blocking.{task}")
    worker = start_worker("blocking:app", "--grace", "1h" if signals > 1 else "100ms")
    wait_for(project_dir / "started")
    lines = []
    worker.send_signal(signal.SIGTERM)
    for line in worker.stderr:
        lines.append(line)
        if line.startswith("Shutting down: ") and signals > 1:
            worker.send_signal(signal.SIGTERM)
        if line.startswith("Forced shutdown") and signals > 2:
            worker.send_signal(signal.SIGINT)
    assert worker.wait(WAIT_TIMEOUT) in {0, 1}
    state = run_cli("jobs", "show", job, "--json").json["state"]
    if worker.returncode == 1:
        assert "did not stop in time and exits now" in lines[-1]
        assert state == "running"
    else:  # the worker stopped waiting for the task
        assert state in {"queued", "running"}
    if task == "blocks":
        assert worker.returncode == 1
        assert f"will be retried after lease expiry: {job} (blocking.blocks)" in lines[-1]


BROKEN_LIFESPAN = """
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
def test_a_lifespan_error_at_shutdown_is_one_message(
    start_worker: Any, project_dir: Path, signals: int
) -> None:
    (project_dir / "broken_lifespan.py").write_text(BROKEN_LIFESPAN)
    worker = start_worker("broken_lifespan:app", "--grace", "1h")
    wait_for(project_dir / "up")
    worker.send_signal(signal.SIGTERM)
    if signals == 2:
        worker.send_signal(signal.SIGINT)
    lines = list(worker.stderr)
    worker.wait(WAIT_TIMEOUT)
    assert any("the pool is stuck" in line for line in lines)
    assert not any("Traceback" in line for line in lines)


def wait_for_line(worker: subprocess.Popen[str], words: str) -> str:
    assert worker.stderr is not None
    for line in worker.stderr:
        if words in line:
            return line
    raise AssertionError(f"{words!r} did not appear")


# -- limits


def test_unknown_tasks_and_bad_payloads_count_as_attempts(
    run_process: Any, enqueue_job: Any, run_cli: Any
) -> None:
    jobs = [enqueue_job("add", a=1, run=False), enqueue_job("greet", name="x", run=False)]
    done = run_process("worker", "lean:app", "--max-jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "exits: processed 2 attempts (--max-jobs)" in done.stderr
    states = [run_cli("jobs", "show", job, "--json").json["state"] for job in jobs]
    assert states == ["retrying", "failed"]


@pytest.fixture(autouse=True)
def lean(project_dir: Path) -> None:
    """An app without `add`, and with other arguments of `greet`."""
    (project_dir / "lean.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass()\n"
        "@app.task(name='tasks.greet', max_retries=0)\n"
        "def greet(number: int) -> None: ...\n"
    )


GROWING = """
from windlass import Windlass

app = Windlass()
kept = []

@app.task
async def grow(mib: int) -> None:
    kept.append(b"x" * mib * 2**20)
"""


def test_a_worker_exits_above_max_memory(run_process: Any, run_cli: Any, project_dir: Path) -> None:
    (project_dir / "growing.py").write_text(GROWING)
    run_cli("enqueue", "grow", "mib=300", "-A", "growing:app")
    done = run_process("worker", "growing:app", "--max-memory", "300M")
    assert done.returncode == 0, done.stderr
    assert "MiB, limit 300 MiB (--max-memory)" in done.stderr
    assert "processed: 1 succeeded" in done.stderr


def test_a_memory_limit_below_the_initial_use_is_refused(run_process: Any) -> None:
    done = run_process("worker", "tasks:app", "--max-memory", "1M")
    assert done.returncode == 2
    assert "before its first job, but --max-memory is 1 MiB; raise the limit" in done.stderr


def test_the_memory_of_child_processes_is_included() -> None:
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
def test_a_burst_of_several_processes_recycles_them_and_exits_with_code_zero(
    run_process: Any, enqueue_job: Any, run_cli: Any
) -> None:
    jobs = [enqueue_job("add", a=n, run=False) for n in range(3)]
    done = run_process(
        "worker", "tasks:app", "--processes", "2", "--burst", "--max-jobs", "1",
        "--concurrency", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Supervising 2 worker processes for tasks:app" in done.stderr
    assert "reached its limit and is replaced" in done.stderr
    assert "All workers stopped" in done.stderr
    states = {run_cli("jobs", "show", job, "--json").json["state"] for job in jobs}
    assert states == {"succeeded"}


@pytest.mark.slow
def test_a_stopped_supervisor_lets_running_jobs_finish(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    (project_dir / "windlass.toml").write_text('processes = 2\napp = "tasks:app"\n')
    job = enqueue_job("until_file", started="started", go="go", run=False)
    supervisor = start_worker()
    wait_for(project_dir / "started")
    supervisor.send_signal(signal.SIGINT)
    wait_for_line(supervisor, "Shutting down all workers")
    (project_dir / "go").touch()
    supervisor.stderr.read()
    assert supervisor.wait(WAIT_TIMEOUT) == 0
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["attempt"]) == ("succeeded", 1)


@pytest.mark.slow
def test_an_invalid_app_ends_the_supervisor_with_code_two(run_process: Any) -> None:
    done = run_process("worker", "nosuch:app", "--processes", "2")
    assert done.returncode == 2
    assert "no module 'nosuch' in" in done.stderr
    assert "Traceback" not in done.stderr


def test_retention_follows_the_settings(project_dir: Path) -> None:
    (project_dir / "windlass.toml").write_text('keep_succeeded = "1d"\nkeep_failed = 0\n')
    retention = worker_config(load_settings()).retention
    day = 86_400
    kept = (retention.succeeded, retention.canceled, retention.failed, retention.log)
    assert kept == (day, 30 * day, 0, 30 * day)
