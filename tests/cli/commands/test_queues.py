"""`windlass queues`: list, drain and clear queues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from windlass.cli import cli


@pytest.mark.parametrize("width", ["40", "90", "120"])
def test_a_queue_shows_its_depth_and_rates_at_any_width(
    run_cli: Any, enqueue_job: Any, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    enqueue_job("broken", why="rust")
    enqueue_job("add", a=1)
    enqueue_job("add", a=1, run=False)
    enqueue_job("add", a=1, run=False, options={"queue": "a-queue-with-a-long-name", "hold": True})
    run_cli("queues", "pause", "a-queue-with-a-long-name")
    out = run_cli("queues", "list").out
    assert "default" in out
    assert "(paused)" in out
    assert max(map(len, out.splitlines())) <= int(width)
    paused, default = run_cli("queues", "list", "--json").json["queues"]
    assert (paused["name"], paused["paused"]) == ("a-queue-with-a-long-name", True)
    assert default["counts"] == {"queued": 1}
    pace = default["perMinute"]
    counts = [round(pace[name] * pace["minutes"]) for name in ("started", "succeeded", "failed")]
    assert counts == [3, 1, 1]  # and one retry
    assert pace["meanRun"] >= 0
    assert default["oldestAge"] >= 0


def test_a_drain_of_an_empty_queue_ends_at_once(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    answer = run_cli("queues", "drain", "default")
    assert answer.code == 0
    assert "Queues empty: default" in answer.err
    enqueue_job("add", a=1, run=False, options={"hold": True})
    assert "default; 1 job held or scheduled" in run_cli("queues", "drain", "default").err


def test_a_drain_ends_at_its_timeout(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1, run=False)
    answer = run_cli("queues", "drain", "default", "--timeout", "200ms")
    assert answer.code == 1
    assert "1 job left after 200ms: default" in answer.err
    assert "No running worker consumes queue default" in answer.err
    run_cli("queues", "pause", "default")
    answer = run_cli("queues", "drain", "default", "--timeout", "200ms")
    assert "queue default is paused" in answer.err
    facts = run_cli("queues", "drain", "default", "--timeout", "200ms", "--json").json
    assert (facts["empty"], facts["left"], facts["queues"]) == (False, 1, ["default"])


def test_a_drain_ends_when_workers_have_emptied_the_queue(
    run_process: Any, enqueue_job: Any, project_dir: Path
) -> None:
    for number in range(5):
        enqueue_job("add", a=number, run=False)
    draining = subprocess.Popen(
        [sys.executable, "-m", "windlass", "queues", "drain", "default", "--timeout", "60s"],
        cwd=project_dir, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert draining.stderr is not None
    assert "5 jobs left, 0 running" in draining.stderr.readline()
    assert run_process("worker", "tasks:app", "--burst").returncode == 0
    _, output = draining.communicate(timeout=60)
    assert draining.returncode == 0
    assert "Queues empty: default after" in output


def test_clear_asks_before_it_cancels_waiting_jobs(run_cli: Any, enqueue_job: Any) -> None:
    jobs = [enqueue_job("add", a=n, run=False) for n in range(3)]
    answer = CliRunner().invoke(cli, ["queues", "clear", "default"], input="n\n")
    assert answer.exit_code == 1
    assert "Cancel 3 jobs in default?" in answer.stderr
    assert "Nothing canceled" in answer.stderr
    assert run_cli("jobs", "show", jobs[0], "--json").json["state"] == "queued"
    answer = CliRunner().invoke(cli, ["queues", "clear", "default"], input="y\n")
    assert answer.exit_code == 0
    assert "default: 3 jobs canceled" in answer.stdout
    facts = run_cli("jobs", "show", jobs[0], "--json").json
    assert (facts["state"], facts["cancelReason"]) == ("canceled", "the queue was cleared")


def test_clear_with_yes_does_not_ask(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1, run=False)
    answer = run_cli("queues", "clear", "default", "--yes", "--reason", "a mistake", "--json")
    assert answer.json == {"name": "default", "canceled": 1}
    assert "No jobs waiting in default" in run_cli("queues", "clear", "default").err
