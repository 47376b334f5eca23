"""`windlass queues`: looking at them, draining them, clearing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from windlass.cli import cli


@pytest.mark.parametrize("width", ["40", "90", "120"])
def test_a_queue_shows_its_depth_and_its_pace_at_any_width(
    ask: Any, put: Any, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    put("broken", why="rust")
    put("add", a=1)
    put("add", a=1, run=False)
    put("add", a=1, run=False, options={"queue": "a-queue-with-a-long-name", "hold": True})
    ask("queues", "pause", "a-queue-with-a-long-name")
    out = ask("queues", "list").out
    assert "default" in out
    assert "(paused)" in out
    assert max(map(len, out.splitlines())) <= int(width)
    paused, default = ask("queues", "list", "--json").json
    assert (paused["queue"], paused["paused"]) == ("a-queue-with-a-long-name", True)
    assert default["counts"] == {"queued": 1, "running": 0, "retrying": 0, "created": 0}
    pace = default["perMinute"]
    counts = [round(pace[name] * pace["minutes"]) for name in ("started", "succeeded", "failed")]
    assert counts == [3, 1, 1]  # and one retry
    assert pace["meanRun"] >= 0
    assert default["oldestAge"] >= 0


def test_a_drain_of_an_empty_queue_is_done_at_once(ask: Any, put: Any) -> None:
    put("add", a=1)
    answer = ask("queues", "drain", "default")
    assert answer.code == 0
    assert "Queues empty: default" in answer.err
    put("add", a=1, run=False, options={"hold": True})
    assert "default; 1 job held or scheduled" in ask("queues", "drain", "default").err


def test_a_drain_waits_for_no_longer_than_its_timeout(ask: Any, put: Any) -> None:
    put("add", a=1, run=False)
    answer = ask("queues", "drain", "default", "--timeout", "200ms")
    assert answer.code == 1
    assert "1 job left after 200ms: default" in answer.err
    assert "No running worker consumes queue default" in answer.err
    ask("queues", "pause", "default")
    answer = ask("queues", "drain", "default", "--timeout", "200ms")
    assert "queue default is paused" in answer.err
    facts = ask("queues", "drain", "default", "--timeout", "200ms", "--json").json
    assert (facts["empty"], facts["left"], facts["queues"]) == (False, 1, ["default"])


def test_a_drain_ends_when_the_workers_have_done_it(call: Any, put: Any, place: Path) -> None:
    for number in range(5):
        put("add", a=number, run=False)
    draining = subprocess.Popen(
        [sys.executable, "-m", "windlass", "queues", "drain", "default", "--timeout", "60s"],
        cwd=place, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert draining.stderr is not None
    assert "5 jobs left, 0 running" in draining.stderr.readline()
    assert call("worker", "tasks:app", "--burst").returncode == 0
    _, output = draining.communicate(timeout=60)
    assert draining.returncode == 0
    assert "Queues empty: default after" in output


def test_clear_asks_before_it_cancels_what_waits(ask: Any, put: Any) -> None:
    jobs = [put("add", a=n, run=False) for n in range(3)]
    answer = CliRunner().invoke(cli, ["queues", "clear", "default"], input="n\n")
    assert answer.exit_code == 1
    assert "Cancel 3 jobs in default?" in answer.stderr
    assert "Nothing canceled" in answer.stderr
    assert ask("jobs", "show", jobs[0], "--json").json["state"] == "queued"
    answer = CliRunner().invoke(cli, ["queues", "clear", "default"], input="y\n")
    assert answer.exit_code == 0
    assert "default: 3 jobs canceled" in answer.stdout
    facts = ask("jobs", "show", jobs[0], "--json").json
    assert (facts["state"], facts["cancelReason"]) == ("canceled", "the queue was cleared")


def test_clear_with_yes_does_not_ask(ask: Any, put: Any) -> None:
    put("add", a=1, run=False)
    answer = ask("queues", "clear", "default", "--yes", "--reason", "a mistake", "--json")
    assert answer.json == {"queue": "default", "canceled": 1}
    assert "No jobs waiting in default" in ask("queues", "clear", "default").err
