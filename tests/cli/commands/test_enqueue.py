"""`windlass enqueue`: arguments as JSON or text, validated before the job is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_a_job_is_enqueued_with_its_arguments_and_options(run_process: Any, run_cli: Any) -> None:
    done = run_process(
        "enqueue", "add", "a=1", "b=2", "-A", "tasks:app", "--queue", "slow", "--priority", "7",
        "--tag", "x", "--delay", "1h", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = run_cli("jobs", "show", json.loads(done.stdout)["id"], "--json").json
    assert facts["arguments"] == {"a": 1, "b": 2}
    assert (facts["queue"], facts["priority"], facts["tags"]) == ("slow", 7, ["x"])
    assert facts["state"] == "created"
    assert facts["dueAt"] is not None


def test_a_value_that_is_not_json_is_text_and_the_app_may_be_a_setting(run_cli: Any) -> None:
    done = run_cli("enqueue", "tasks.greet", "name=Ann Lee", "--json", WINDLASS_APP="tasks:app")
    assert done.code == 0, done.err
    facts = run_cli("jobs", "show", done.json["id"], "--json").json
    assert facts["arguments"] == {"name": "Ann Lee"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "a=x"], "argument 'a': Input should be a valid integer"),
        (["add"], "missing a required argument: 'a'"),
        (["add", "a=1", "c=2"], "has no argument 'c'; it takes 'a', 'b'"),
        (["add", "1"], "write name=value"),
        (["greet", "name=5"], """quote text that looks like a number twice: name='"5"'"""),
        (["gret", "name=x"], "did you mean 'greet'?"),
        (["xyzzy"], "its tasks: tasks.add, tasks.greet"),
        (["add", "a=1", "--delay", "soon"], "delay is 'soon'"),
    ],
)
def test_an_invalid_argument_is_named_and_nothing_is_stored(
    run_cli: Any, project_dir: Path, words: list[str], message: str
) -> None:
    done = run_cli("enqueue", *words, "-A", "tasks:app")
    assert done.code == 2
    assert message in done.err
    assert not (project_dir / "windlass.db").exists()


def test_a_repeated_request_id_returns_the_same_job(run_cli: Any) -> None:
    first, second = (
        run_cli("enqueue", "add", "a=1", "-A", "tasks:app", "--request-id", "r", "--json")
        for _ in range(2)
    )
    assert first.json["id"] == second.json["id"]
    assert second.json["duplicate"] is True
    other = run_cli("enqueue", "add", "a=2", "-A", "tasks:app", "--request-id", "r")
    assert other.code == 1
    assert "with different arguments" in other.err
