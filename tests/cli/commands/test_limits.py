"""`windlass limits`: list, set, reset and remove limits; limits in the output of `jobs`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from windlass import Limit
from windlass.records.limit_records import LimitRecords
from windlass.stores import open_store

TWO = {"concurrency": 2, "starts": None, "period": None}


@pytest.fixture
def declare(project_dir: Path) -> Any:
    """Declare limits like a process at its start."""

    def declared(**limits: Any) -> None:
        async def work() -> None:
            async with open_store(f"sqlite:///{project_dir}/windlass.db") as store:
                await LimitRecords(store).declare({"queue:default": Limit(**limits)})

        asyncio.run(work())

    return declared


def test_a_limit_is_set_and_listed(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    done = run_cli("limits", "set", "queue:render", "--concurrency", "2", "--rate", "10/1m")
    assert (done.code, done.out) == (0, "queue:render: 2 at once, 10 starts in 60 s\n")
    facts = run_cli("limits", "set", "task:tasks.add", "--concurrency", "2", "--json").json
    assert facts == {
        "name": "task:tasks.add", "limit": TWO, "declared": None, "override": TWO,
        "inUse": 0, "waiting": 0, "capped": False,
    }  # fmt: skip
    run_cli("limits", "set", "key:tasks.add", "--rate", "5/s")
    key, queue, task = run_cli("limits", "list", "--json").json["limits"]
    assert (key["name"], key["inUse"], key["waiting"]) == ("key:tasks.add", None, None)
    assert queue["limit"] == {"concurrency": 2, "starts": 10, "period": 60.0}
    assert task == facts
    head, *lines = run_cli("limits", "list").out.splitlines()
    assert head.split("  ")[0] == "limit"
    assert [line.split()[0] for line in lines] == [key["name"], queue["name"], task["name"]]
    assert "2 at once, 10 starts in 60 s" in lines[1]


def test_nothing_is_cut_in_a_narrow_terminal(
    run_cli: Any, enqueue_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_job("add", a=1)
    run_cli("limits", "set", "queue:one-with-a-rather-long-name", "--concurrency", "2")
    monkeypatch.setenv("COLUMNS", "40")
    out = run_cli("limits", "list").out
    assert "queue:one-with-a-rather-long-name\n" in out
    assert "2 at once (code: -)" in out
    assert "0 in use, 0 waiting" in out


def test_without_limits_it_prints_how_to_create_one(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    done = run_cli("limits", "list")
    assert (done.code, done.out) == (0, "")
    assert "windlass limits set" in done.err
    assert run_cli("limits", "list", "--json").json == {"limits": []}


def test_a_reset_restores_the_declared_limit(run_cli: Any, enqueue_job: Any, declare: Any) -> None:
    enqueue_job("add", a=1)
    declare(concurrency=5)
    run_cli("limits", "set", "queue:default", "--concurrency", "2")
    line = run_cli("limits", "list").out.splitlines()[1]
    assert ("2 at once" in line, "5 at once" in line) == (True, True)
    done = run_cli("limits", "reset", "queue:default")
    assert done.out == "queue:default: 5 at once (from code)\n"
    assert "same" in run_cli("limits", "list").out
    assert run_cli("limits", "reset", "queue:default", "--json").json["override"] is None


def test_a_reset_of_an_undeclared_limit_admits_all_jobs(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    run_cli("limits", "set", "queue:x", "--concurrency", "2")
    assert run_cli("limits", "reset", "queue:x").out == "queue:x: limit removed\n"
    run_cli("limits", "set", "queue:x", "--concurrency", "2")
    assert run_cli("limits", "reset", "queue:x", "--json").json == {
        "name": "queue:x",
        "limit": None,
    }
    assert run_cli("limits", "list", "--json").json == {"limits": []}


def test_removing_a_declared_limit_warns_that_it_may_return(
    run_cli: Any, enqueue_job: Any, declare: Any
) -> None:
    enqueue_job("add", a=1)
    declare(concurrency=5)
    done = run_cli("limits", "remove", "queue:default")
    assert (done.code, done.out) == (0, "queue:default: limit removed\n")
    assert "creates it again" in " ".join(done.err.split())
    run_cli("limits", "set", "queue:default", "--concurrency", "2")
    assert run_cli("limits", "remove", "queue:default").err == ""


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["set", "queue:x"], 2, "needs concurrency= or rate="),
        (["set", "queue:x", "--rate", "ten"], 2, "write NUMBER/PERIOD"),
        (["set", "queue:x", "--concurrency", "0"], 2, "from 1 to 100,000"),
        (["set", "render", "--concurrency", "2"], 2, "write queue:NAME"),
        (["reset", "queue:x"], 1, "queue:x has no limit"),
        (["remove", "queue:x"], 1, "queue:x has no limit"),
    ],
)
def test_invalid_arguments_are_reported(
    run_cli: Any, enqueue_job: Any, words: list[str], code: int, why: str
) -> None:
    enqueue_job("add", a=1)
    done = run_cli("limits", *words)
    assert done.code == code
    assert why in " ".join(done.err.split())


def test_jobs_show_their_limit_key_and_the_limit_they_wait_for(
    run_cli: Any, enqueue_job: Any
) -> None:
    enqueue_job("add", a=1)
    run_cli("limits", "set", "key:tasks.add", "--concurrency", "1")
    first, second = (
        enqueue_job("add", a=2, run=False, options={"limit_key": "ada"}) for _ in range(2)
    )
    facts = run_cli("jobs", "show", second, "--json").json
    assert (facts["limitKey"], facts["gate"]) == ("ada", "key:tasks.add")
    out = run_cli("jobs", "show", second).out
    assert "limit key        ada" in out
    assert "waiting for      key:tasks.add" in out
    assert "limited by key:tasks.add" in run_cli("jobs", "list").out
    why = run_cli("jobs", "why", second)
    assert f"limit of 1 for key 'ada' of task tasks.add is reached by job {first}" in why.out
    [reason] = run_cli("jobs", "why", second, "--json").json["reasons"]
    assert reason["code"] == "limited"


def test_enqueue_accepts_a_limit_key(run_process: Any) -> None:
    done = run_process("enqueue", "add", "a=1", "--limit-key", "ada", "-A", "tasks:app", "--json")
    assert json.loads(done.stdout)["limitKey"] == "ada"
