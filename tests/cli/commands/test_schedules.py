"""`windlass schedules`: list, add, pause, run and delete schedules."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.records.schedule_records import ScheduleRecords, make_schedule
from windlass.stores import open_store
from windlass.testing import make_job

APP = ("-A", "tasks:app")


@pytest.fixture
def run_cli(run_cli: Any) -> Any:
    """Each command imports the app again, like a new process: the previous command closed it."""

    def run(*words: str) -> Any:
        sys.modules.pop("tasks", None)
        return run_cli(*words)

    return run


@pytest.fixture
def add(run_cli: Any) -> Any:
    """Add a schedule by the command; return its output."""

    def added(name: str, *words: str) -> Any:
        done = run_cli("schedules", "add", name, "greet", "name=ada", *words, *APP, "--json")
        assert done.code == 0, done.err
        return done.json

    return added


def test_a_schedule_is_added_and_listed(run_cli: Any, add: Any) -> None:
    facts = add("nightly", "--cron", "30 3 * * *", "--tz", "Europe/Berlin", "--missed", "all")
    assert facts == {
        "name": "nightly",
        "task": "tasks.greet",
        "queue": "default",
        "arguments": {"name": "ada"},
        "sealed": False,
        "cron": "30 3 * * *",
        "every": None,
        "tz": "Europe/Berlin",
        "missed": "all",
        "paused": False,
        "declared": False,
        "lastTick": None,
        "lastJobId": None,
        "nextTick": facts["nextTick"],
        "nextTicks": facts["nextTicks"],
    }
    assert facts["nextTick"].endswith(":30:00Z")
    assert (facts["nextTicks"][0], len(facts["nextTicks"])) == (facts["nextTick"], 5)
    assert run_cli("schedules", "list", "--json").json == {"schedules": [facts]}
    add("often", "--every", "90m")
    head, first, second = run_cli("schedules", "list").out.splitlines()
    assert head.split() == ["schedule", "when", "task", "missed", "last", "next"]
    assert "30 3 * * * Europe/Berlin" in first
    assert "never" in first
    assert "every 90m" in second
    assert "in 1h" in second


def test_nothing_is_cut_in_a_narrow_terminal(
    run_cli: Any, add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("a-rather-long-name-for-a-schedule", "--cron", "0 0 1 1 *", "--tz", "America/New_York")
    monkeypatch.setenv("COLUMNS", "50")
    out = run_cli("schedules", "list").out
    assert "a-rather-long-name-for-a-schedule" in out
    assert "0 0 1 1 * America/New_York: tasks.greet" in out


def test_without_schedules_it_prints_how_to_create_one(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1, run=False)
    done = run_cli("schedules", "list")
    assert (done.code, done.out) == (0, "")
    assert "windlass schedules add" in done.err
    assert run_cli("schedules", "list", "--json").json == {"schedules": []}


def test_a_schedule_is_paused_and_resumed(run_cli: Any, add: Any) -> None:
    add("often", "--every", "5m")
    assert run_cli("schedules", "pause", "often").out == "often paused\n"
    assert run_cli("schedules", "list").out.splitlines()[1].split()[-1] == "paused"
    assert run_cli("schedules", "resume", "often").out.startswith("often resumed; next run in 4m")
    assert run_cli("schedules", "pause", "often", "--json").json["paused"] is True


def test_run_enqueues_a_job_of_the_schedule_now(run_cli: Any, add: Any) -> None:
    add("often", "--every", "5m", "--queue", "slow", "--priority", "4", "--unique-key", "k")
    made = run_cli("schedules", "run", "often", "--json").json
    assert (made["task"], made["queue"], made["priority"]) == ("tasks.greet", "slow", 4)
    shown = run_cli("jobs", "show", made["id"], "--json").json
    assert (shown["arguments"], shown["headers"]["schedule"]) == ({"name": "ada"}, "often")
    assert shown["uniqueKey"] == "k"
    assert " queued" in run_cli("schedules", "run", "often").out


def test_a_schedule_is_deleted(run_cli: Any, add: Any) -> None:
    add("often", "--every", "5m")
    done = run_cli("schedules", "delete", "often")
    assert (done.code, done.out, done.err) == (0, "often deleted\n", "")
    assert run_cli("schedules", "list", "--json").json == {"schedules": []}


def test_deleting_a_declared_schedule_warns_that_it_returns(
    run_cli: Any, project_dir: Path
) -> None:
    async def declare() -> None:
        async with open_store(f"sqlite:///{project_dir}/windlass.db") as store:
            made = make_schedule("coded", make_job(), every="1h")
            await ScheduleRecords(store).declare([replace(made, declared="x")])

    asyncio.run(declare())
    done = run_cli("schedules", "delete", "coded")
    assert done.code == 0
    assert "the next worker start restores it" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["greet", "name=x"], "needs either a cron expression"),
        (["greet", "name=x", "--cron", "* * *"], "wrong number of fields"),
        (["greet", "name=x", "--cron", "* * * * *", "--tz", "Berlin"], "mean Europe/Berlin"),
        (["greet", "name=x", "--every", "1ms"], "it must be 1 s or more"),
        (["greet", "nam=x", "--every", "5m"], "has no argument 'nam'"),
        (["great", "name=x", "--every", "5m"], "did you mean 'greet'?"),
        (["greet", "--every", "5m"], "missing a required argument: 'name'"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported(run_cli: Any, words: list[str], why: str) -> None:
    done = run_cli("schedules", "add", "x", *words, *APP)
    assert done.code == 2
    assert why in " ".join(done.err.split())


def test_a_duplicate_or_unknown_name_is_refused(run_cli: Any, add: Any) -> None:
    add("often", "--every", "5m")
    taken = run_cli("schedules", "add", "often", "greet", "name=x", "--every", "5m", *APP)
    assert (taken.code, "schedule 'often' already exists" in taken.err) == (1, True)
    for verb in ("pause", "resume", "delete", "run"):
        done = run_cli("schedules", verb, "rarely")
        assert (done.code, done.err) == (1, "error: no schedule 'rarely'\n")
