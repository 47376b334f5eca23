"""Shutdown by signals: repeated, during blocking calls, and with blocked output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WAIT_TIMEOUT = 30.0


def wait_for(path: Path) -> None:
    """Poll for an effect of another process."""
    deadline = time.monotonic() + WAIT_TIMEOUT
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


class FullPipe:
    """A pipe without a reader."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()

    def fill(self) -> None:
        flags = fcntl.fcntl(self.writer, fcntl.F_GETFL)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(self.writer, b"." * size)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags)

    def close(self) -> None:
        os.close(self._reader)
        os.close(self.writer)


@pytest.fixture
def full_pipe() -> Iterator[FullPipe]:
    pipe = FullPipe()
    yield pipe
    pipe.close()


@pytest.fixture
def start_worker(project_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "worker", *words],
            cwd=project_dir,
            env=os.environ.copy(),
            stderr=stderr,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("words", [[], ["--processes", "1"]], ids=["alone", "supervised"])
def test_a_full_pipe_does_not_block_a_stop(
    start_worker: Any,
    enqueue_job: Any,
    run_cli: Any,
    project_dir: Path,
    *,
    full_pipe: FullPipe,
    words: list[str],
) -> None:
    job = enqueue_job("until_file", started="started", go="never", run=False)
    worker = start_worker("tasks:app", "--grace", "100ms", *words, stderr=full_pipe.writer)
    wait_for(project_dir / "started")
    full_pipe.fill()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_TIMEOUT) == 0
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["crashCount"]) == ("queued", 0)


BLOCKING = """
import time
from pathlib import Path
from windlass import Windlass

app = Windlass()

@app.task
async def blocks() -> None:
    Path("started").touch()
    time.sleep(600)
"""


def test_a_full_pipe_does_not_block_a_forced_exit(
    start_worker: Any, enqueue_by_name: Any, project_dir: Path, full_pipe: FullPipe
) -> None:
    (project_dir / "blocking.py").write_text(BLOCKING)
    enqueue_by_name("blocking.blocks")
    worker = start_worker("blocking:app", "--grace", "1h", stderr=full_pipe.writer)
    wait_for(project_dir / "started")
    full_pipe.fill()
    deadline = time.monotonic() + WAIT_TIMEOUT
    while worker.poll() is None:  # only its end shows that a signal was handled
        assert time.monotonic() < deadline
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert worker.returncode == 1


@pytest.mark.slow
def test_an_immediate_second_stop_reaches_all_processes(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    job = enqueue_job("until_file", started="started", go="never", run=False)
    supervisor = start_worker("tasks:app", "--processes", "2", "--grace", "1h")
    wait_for(project_dir / "started")
    supervisor.send_signal(signal.SIGTERM)
    lines = []
    for line in supervisor.stderr:
        lines.append(line)
        if line.startswith("Shutting down all workers"):
            supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(WAIT_TIMEOUT) == 0, lines
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["retryCount"], facts["crashCount"]) == ("queued", 0, 0)
    assert not any("is killed" in line for line in lines)


def test_a_signal_to_every_process_keeps_the_grace_period_of_running_jobs(
    start_worker: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    """A service manager sends signals repeatedly and to every process."""
    job = enqueue_job("until_file", started="started", go="go", run=False)
    supervisor = start_worker("tasks:app", "--processes", "1", "--grace", "1h")
    wait_for(project_dir / "started")
    [worker] = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    for pid in (supervisor.pid, int(worker), int(worker)):
        os.kill(pid, signal.SIGTERM)
    for line in supervisor.stderr:
        if line.startswith("Shutting down all workers"):
            os.kill(int(worker), signal.SIGTERM)
            (project_dir / "go").touch()
    assert supervisor.wait(WAIT_TIMEOUT) == 0
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["attempt"]) == ("succeeded", 1)


# A signal delivered to another thread does not interrupt a blocking call of the main thread. The
# same happens with a signal just before the call.
SIGNAL_BEFORE_BLOCKING = """
import signal, threading, time
from pathlib import Path
from windlass import Windlass

app = Windlass()

def receive_signal() -> None:
    while not Path("again").exists():
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

@app.task
async def blocks() -> None:
    threading.Thread(target=receive_signal, daemon=True).start()
    Path("started").touch()
    time.sleep(20)
    Path("slept").touch()
"""


def test_a_signal_just_before_a_blocking_call_is_handled_during_it(
    start_worker: Any, enqueue_by_name: Any, project_dir: Path
) -> None:
    (project_dir / "missed.py").write_text(SIGNAL_BEFORE_BLOCKING)
    enqueue_by_name("missed.blocks")
    worker = start_worker("missed:app", "--grace", "1h")
    wait_for(project_dir / "started")
    worker.send_signal(signal.SIGTERM)
    for line in worker.stderr:
        if line.startswith("Shutting down: "):
            (project_dir / "again").touch()
        if line.startswith("Forced shutdown"):
            assert not (project_dir / "slept").exists()
            break
    else:
        raise AssertionError("the second signal was not handled")


IN_C = """
import hashlib
from functools import partial
from pathlib import Path
from windlass import Windlass, WorkerConfig
from windlass.cli.worker_process import worker_runner
from windlass.cli.commands import worker

worker_runner.FORCE_TIMEOUT = 0.2  # seconds; the supervisor waits for longer
worker_runner.STORE_TIMEOUT = 30
worker.WorkerConfig = partial(WorkerConfig, release_timeout=0.2)
app = Windlass()

@app.task
async def hashes() -> None:
    Path("started").touch()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes, without checking signals
"""


@pytest.mark.slow
def test_a_supervised_worker_handles_each_stop_during_a_blocking_call(
    start_worker: Any, enqueue_by_name: Any, project_dir: Path
) -> None:
    (project_dir / "deep.py").write_text(IN_C)
    enqueue_by_name("deep.hashes")
    supervisor = start_worker("deep:app", "--processes", "1", "--grace", "1h")
    wait_for(project_dir / "started")
    supervisor.send_signal(signal.SIGTERM)
    lines = []
    for line in supervisor.stderr:
        lines.append(line)
        if line.startswith("Shutting down all workers"):
            supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(WAIT_TIMEOUT) == 1
    output = "".join(lines)
    # It exits by itself and is not killed by the supervisor.
    assert "did not stop in time and exits now; will be retried after lease expiry: " in output
    assert "is killed" not in output
