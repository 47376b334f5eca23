"""`windlass dev`: live view of jobs, and reload on code changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from tests.cli.commands.test_worker import WAIT_TIMEOUT, wait_for

from windlass import WorkerConfig
from windlass.cli.demo_app import demo_app, enqueue_demo
from windlass.cli.worker_process.reload import snapshot
from windlass.core.query.job_query import JobQuery


class Dev:
    """A `windlass dev` process, and its output on both streams."""

    def __init__(self, project_dir: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "dev", *words],
            cwd=project_dir,
            env=os.environ.copy(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output: list[str] = []
        # Without this, a test that waits for a missing line would never end.
        self._watch = Thread(target=self._bound, daemon=True)
        self._watch.start()

    def _bound(self) -> None:
        try:
            self.process.wait(2 * WAIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def until(self, words: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if words in line:
                return line
        raise AssertionError(f"{words!r} did not appear: {''.join(self.output)}")

    def end(self) -> str:
        rest, _ = self.process.communicate(timeout=WAIT_TIMEOUT)
        return "".join(self.output) + rest


@pytest.fixture
def dev(project_dir: Path) -> Iterator[Callable[..., Dev]]:
    started: list[Dev] = []

    def start(*words: str) -> Dev:
        started.append(Dev(project_dir, *words))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_without_an_app_a_demo_job_runs(dev: Any, project_dir: Path) -> None:
    one = dev()
    one.until("Demo: one job")
    one.until("running demo.film")
    one.process.send_signal(signal.SIGINT)
    one.until("Shutting down: ")
    one.process.send_signal(signal.SIGINT)
    output = one.end()
    assert one.process.returncode == 0, output
    assert "Traceback" not in output
    assert (project_dir / "windlass-demo.db").exists()
    assert not (project_dir / "windlass.db").exists()


@pytest.mark.slow
def test_two_dev_servers_run_side_by_side_and_serve_their_jobs_over_http(dev: Any) -> None:
    first, second = dev(), dev()
    urls = [one.until("HTTP API at ").split()[-1] for one in (first, second)]

    answers = [httpx.get(url, verify=False, timeout=WAIT_TIMEOUT) for url in urls]

    assert len(set(urls)) == 2
    assert [answer.json()["jobs"][0]["task"] for answer in answers] == ["demo.film"] * 2


@pytest.mark.slow
def test_an_explicit_port_in_use_is_an_error(dev: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = dev("--port", str(taken.getsockname()[1]))

        output = one.end()

    assert one.process.returncode == 2, output
    assert "cannot listen on" in output


async def test_the_demo_job_runs_to_its_end_and_is_enqueued_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = demo_app(pace=0)
    await enqueue_demo(app)
    await enqueue_demo(app)
    await app.worker(WorkerConfig(burst=True)).run()
    [row] = (await app.client().store.find(JobQuery())).rows
    await app.aclose()
    assert (row.state, row.stage, row.percent) == ("succeeded", "render", 100)


@pytest.mark.slow
def test_jobs_of_every_queue_of_the_app_are_shown_until_they_end(
    dev: Any, run_cli: Any, project_dir: Path
) -> None:
    (project_dir / "mine.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass()\n"
        "@app.task(queue='media', max_retries=0)\n"
        "def cut() -> None: raise ValueError('no [film]')\n"
    )
    one = dev("mine:app")
    assert "queues  default=10, media=10" in one.until("queues")
    job = run_cli("enqueue", "cut", "-A", "mine:app").out.split()[0]
    line = one.until("failed")
    assert f"failed mine.cut {job} after" in line
    assert "ValueError: no [film]" in line
    one.process.send_signal(signal.SIGTERM)
    assert "Stopped" in one.end()


@pytest.mark.parametrize("columns", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_a_terminal_shows_a_bar_that_fits(
    open_terminal: Any, enqueue_job: Any, project_dir: Path, columns: int
) -> None:
    enqueue_job("until_file", started="started", go="go", run=False)
    terminal = open_terminal(columns, "dev", "tasks:app")
    wait_for(project_dir / "started")
    terminal.read_until("running tasks.until_file")
    terminal.read_until("━")
    (project_dir / "go").touch()
    terminal.read_until("succeeded tasks.until_file")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert terminal.shown.rstrip().endswith("Stopped")


@pytest.mark.slow
def test_a_code_change_requeues_running_jobs_and_runs_them_again(
    dev: Any, enqueue_job: Any, run_cli: Any, project_dir: Path
) -> None:
    job = enqueue_job("until_file", started="started", go="go", run=False)
    code = (project_dir / "tasks.py").read_text()
    one = dev("tasks:app", "--reload")
    one.until("running tasks.until_file")
    (project_dir / "tasks.py").write_text(code + "\nbroken = (\n")
    one.until("importing 'tasks' failed: SyntaxError")
    one.until("Waiting for a code change")
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["retryCount"], facts["crashCount"]) == ("queued", 0, 0)
    (project_dir / "tasks.py").write_text(code)
    (project_dir / "go").touch()
    one.until("tasks.py changed; reloading")
    one.until("succeeded tasks.until_file")
    one.process.send_signal(signal.SIGTERM)
    assert "Stopped" in one.end()
    assert one.process.returncode == 0


@pytest.mark.slow  # tests/worker/test_supervisor.py tests the same for a supervisor
def test_no_worker_outlives_a_reloader_that_is_killed(
    dev: Any, enqueue_job: Any, project_dir: Path
) -> None:
    enqueue_job("until_file", started="started", go="go", run=False)
    one = dev("tasks:app", "--reload")
    one.until("running tasks.until_file")
    one.process.kill()
    (project_dir / "go").touch()
    assert "Stopped" in one.end()  # reads until all writers have ended


def test_reload_watches_only_the_code_of_the_user(tmp_path: Path) -> None:
    for name in ("a.py", "pack/b.py", ".git/c.py", "pack/__pycache__/d.py", "e.txt",
                 "env/pyvenv.cfg", "env/lib/f.py"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(snapshot(tmp_path)) == ["a.py", "pack/b.py"]
