"""`windlass jobs`: looking at jobs, following them, acting on them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.worker.factories import Spy

from windlass import Windlass, WorkerConfig
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.stores import open_store
from windlass.worker.loops.presence import Presence


def test_jobs_are_listed_newest_first(ask: Any, put: Any) -> None:
    first = put("add", a=1)
    second = put("broken", why="rust")
    lines = ask("jobs", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert "failed" in lines[1]
    assert "ValueError" in lines[1]
    assert "succeeded" in lines[2]


def test_a_list_is_narrowed_by_state_queue_task_tag_and_error(ask: Any, put: Any) -> None:
    good = put("add", a=1, options={"tags": ("blue", "big")})
    bad = put("broken", why="rust")
    held = put("greet", name="x", run=False, options={"hold": True, "queue": "slow"})

    def ids(*filters: str) -> list[str]:
        return [job["id"] for job in ask("jobs", "list", "--json", *filters).json["jobs"]]

    assert ids("--state", "failed") == [bad]
    assert ids("--state", "failed", "--state", "succeeded") == [bad, good]
    assert ids("--queue", "slow") == [held]
    assert ids("--task", "tasks.add") == [good]
    assert ids("--tag", "big", "--tag", "blue") == [good]
    assert ids("--error", "ValueError") == [bad]
    assert ids("--error", "KeyError") == []


def test_a_long_list_is_paged(ask: Any, put: Any) -> None:
    made = [put("add", a=n, run=False) for n in range(3)]
    page = ask("jobs", "list", "--json", "--limit", "2").json
    rest = ask("jobs", "list", "--json", "--limit", "2", "--cursor", page["cursor"]).json
    assert [job["id"] for job in page["jobs"] + rest["jobs"]] == made[::-1]
    assert rest["cursor"] is None


@pytest.mark.parametrize("width", ["30", "44", "79", "80", "200"])
def test_an_id_is_never_cut_however_narrow_the_terminal(
    ask: Any, put: Any, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    job = put("add", a=1)
    monkeypatch.setenv("COLUMNS", width)
    answer = ask("jobs", "list")
    assert job in answer.out
    assert "succeeded" in answer.out


def test_a_job_is_shown_whole(ask: Any, put: Any) -> None:
    job = put("broken", why="rust [here]")
    answer = ask("jobs", "show", job)
    for part in (job, "failed", "tasks.broken", '{"why": "rust [here]"}', "ValueError: rust [here]",
                 "fail: ValueError", "retry the job"):  # fmt: skip
        assert part in answer.out, part
    facts = ask("jobs", "show", job, "--json").json
    assert facts["payload"] == {"why": "rust [here]"}
    assert facts["lastError"]["message"] == "rust [here]"
    assert [one["outcome"] for one in facts["attempts"]] == ["retry", "fail"]


def test_a_job_may_be_named_by_the_end_of_its_id(ask: Any, put: Any) -> None:
    job = put("add", a=1)
    assert ask("jobs", "show", job[-8:], "--json").json["id"] == job
    assert ask("jobs", "show", job[:30], "--json").json["id"] == job


def test_a_piece_that_two_jobs_share_is_refused(ask: Any, put: Any) -> None:
    ids = [put("add", a=n, run=False) for n in range(2)]
    answer = ask("jobs", "show", ids[0][:5])
    assert answer.code == 2
    assert "2 recent jobs start or end with" in answer.err
    assert "give more of the id" in answer.err


def test_an_invalid_id_and_a_missing_job_are_different_errors(ask: Any, put: Any) -> None:
    put("add", a=1)
    assert ask("jobs", "show", "nonsense").code == 2
    assert ask("jobs", "show", "abc").code == 2
    missing = str(uuid7())
    answer = ask("jobs", "show", missing)
    assert answer.code == 1
    assert f"no job {missing}" in answer.err


def test_watching_a_job_prints_its_events_and_its_result(ask: Any, put: Any) -> None:
    answer = ask("jobs", "watch", put("film", title="Sea"))
    assert answer.code == 0
    words = answer.out.splitlines()
    assert "created" in words[0]
    assert any("running attempt 1" in line for line in words)
    assert any(line.endswith("info writing [the] script") for line in words)
    assert 'result: {"file": "Sea"}' in words[-1]


def test_watching_a_job_that_failed_is_exit_code_one(ask: Any, put: Any) -> None:
    answer = ask("jobs", "watch", put("broken", why="rust"))
    assert answer.code == 1
    assert "ValueError: rust" in answer.out.splitlines()[-1]


def test_watching_as_json_is_one_event_per_line_without_gaps(ask: Any, put: Any) -> None:
    answer = ask("jobs", "watch", put("film", title="Sea"), "--json")
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "job-completed"
    assert events[-1]["data"]["output"] == {"file": "Sea"}


def test_the_log_of_a_waiting_job_ends_where_it_is(ask: Any, put: Any) -> None:
    job = put("add", a=1, run=False)
    lines = ask("jobs", "logs", job).out.splitlines()
    assert [line.split()[1] for line in lines] == ["created", "queued"]
    assert ask("jobs", "logs", job, "--after", "1").out.count("\n") == 1
    assert ask("jobs", "logs", job, "--after", "2").out == ""


def test_a_held_job_is_submitted_once(ask: Any, put: Any) -> None:
    job = put("add", a=1, run=False, options={"hold": True})
    assert "held" in ask("jobs", "list").out
    assert ask("jobs", "submit", job, "--json").json == [{"id": job, "state": "queued"}]
    other = put("add", a=1)
    answer = ask("jobs", "submit", other)
    assert answer.code == 1
    assert "is succeeded and cannot be submitted" in answer.err


def test_a_waiting_job_is_canceled_with_its_reason(ask: Any, put: Any) -> None:
    job = put("add", a=1, run=False)
    assert ask("jobs", "cancel", job, "--reason", "too late").code == 0
    facts = ask("jobs", "show", job, "--json").json
    assert (facts["state"], facts["cancelReason"]) == ("canceled", "too late")


def test_one_job_that_is_refused_does_not_keep_the_others(ask: Any, put: Any) -> None:
    done, waiting = put("add", a=1), put("add", a=2, run=False)
    answer = ask("jobs", "cancel", done, waiting, "--json")
    assert answer.code == 1
    assert [one.get("error") for one in answer.json] == ["conflict", None]
    assert ask("jobs", "show", waiting, "--json").json["state"] == "canceled"


@pytest.mark.parametrize("as_json", [True, False])
def test_results_are_printed_when_the_store_fails_midway(
    ask: Any, put: Any, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    jobs = [put("add", a=n, run=False) for n in range(3)]
    calls = []

    def look(verb: str) -> None:
        if verb == "cancel":
            calls.append(verb)
            if len(calls) == 2:
                raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(
        "windlass.cli.store_connection.open_store", lambda url: Spy(open_store(url), look)
    )
    answer = ask("jobs", "cancel", *jobs, *(["--json"] if as_json else []))
    assert answer.code == 3
    assert "the disk is gone" in answer.err
    assert f"not tried: {jobs[2]}" in answer.err
    if as_json:
        results = [(one["id"], one.get("error")) for one in answer.json]
        assert results == [(jobs[0], None), (jobs[1], "store_unavailable")]
    else:
        assert answer.out == f"{jobs[0]} canceled\n"


def test_why_prints_reasons_with_advice(ask: Any, put: Any) -> None:
    job = put("add", a=1, run=False, options={"hold": True, "delay": "1h"})
    answer = ask("jobs", "why", job[-8:])
    assert answer.code == 0
    assert "Held until it is submitted" in answer.out
    assert f"→ windlass jobs submit {job}" in answer.out
    assert "(in 59m)" in answer.out
    facts = ask("jobs", "why", job, "--json").json
    assert (facts["id"], facts["state"]) == (job, "created")
    assert [one["code"] for one in facts["reasons"]] == ["held", "scheduled"]
    assert [one["at"] is None for one in facts["reasons"]] == [True, False]
    assert ask("jobs", "why", put("add", a=1)).out.splitlines()[1].startswith("  Succeeded at")


async def show_worker(url: str) -> None:
    async with open_store(url) as store:
        config = WorkerConfig(name="mill-1", queues={"default": 3, "media": 1})
        app = Windlass("memory:")
        await Presence(
            store, app.tasks, config, running=lambda: 2, last_claim=lambda: None
        ).publish()


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_live_workers_are_listed(
    ask: Any, put: Any, place: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    job = put("add", a=1, run=False)
    assert "No running workers" in ask("workers", "list").err
    assert ask("workers", "list", "--json").json == []
    asyncio.run(show_worker(f"sqlite:///{place}/windlass.db"))
    shown = ask("workers", "list").out
    for part in ("mill-1", "never", "default=3,media=1"):
        assert part in shown
    [facts] = ask("workers", "list", "--json").json
    assert (facts["name"], facts["queues"], facts["running"]) == (
        "mill-1", {"default": 3, "media": 1}, 2,
    )  # fmt: skip
    assert facts["lastClaimAt"] is None
    assert ask("jobs", "why", job, "--json").json["reasons"][0]["code"] == "unknown_task"


def test_a_retry_is_a_new_job_that_points_back(ask: Any, put: Any) -> None:
    job = put("broken", why="rust")
    [answer] = ask("jobs", "retry", job, "--json").json
    new = ask("jobs", "show", answer["newId"], "--json").json
    assert (new["retryOf"], new["state"], new["payload"]) == (job, "queued", {"why": "rust"})
    assert ask("jobs", "show", job, "--json").json["retriedAs"] == new["id"]
    again = ask("jobs", "retry", job)
    assert again.code == 0
    assert f"already retried as {new['id']}" in again.out


def test_a_resumed_job_continues_after_its_last_step(ask: Any, put: Any, place: Path) -> None:
    job = put("stepped")
    assert "jobs resume" in ask("jobs", "show", job).out
    (place / "fixed").touch()
    [answer] = ask("jobs", "resume", job, "--json").json
    put("add", a=1)  # and run whatever waits
    assert ask("jobs", "show", answer["newId"], "--json").json["result"] == "done"
    assert (place / "pieces").read_text() == "x"


def test_a_job_without_steps_cannot_be_resumed_only_retried(ask: Any, put: Any) -> None:
    answer = ask("jobs", "resume", put("broken", why="rust"))
    assert answer.code == 1
    assert "has no completed step to resume from; retry it instead" in answer.err


def test_only_finished_jobs_are_deleted(ask: Any, put: Any) -> None:
    done, waiting = put("add", a=1), put("add", a=2, run=False)
    answer = ask("jobs", "delete", done, waiting)
    assert answer.code == 1
    assert f"{done} deleted" in answer.out
    assert "is queued; cancel it before deleting it" in answer.err
    assert ask("jobs", "show", done).code == 1
    assert ask("jobs", "show", waiting).code == 0


def test_jobs_in_a_directory_without_a_file_make_none(ask: Any, place: Path) -> None:
    answer = ask("jobs", "list")
    assert answer.code == 3
    assert f"No database at {place}/windlass.db" in answer.err
    assert not (place / "windlass.db").exists()


def test_jobs_in_memory_cannot_be_seen_from_here(ask: Any) -> None:
    answer = ask("jobs", "list", "--url", "memory:")
    assert answer.code == 2
    assert "sqlite:///jobs.db" in answer.err


SEALED = """
from windlass import EncryptingCodec, Windlass

app = Windlass(codec=EncryptingCodec({"k": b"0" * 32}))

@app.task
def secret(word: str) -> str:
    return word
"""


def test_what_is_encrypted_is_read_only_with_the_app(ask: Any, place: Path) -> None:
    (place / "sealed.py").write_text(SEALED)
    job = ask("enqueue", "secret", "word=xyzzy", "-A", "sealed:app", "--json").json["id"]
    blind = ask("jobs", "show", job)
    assert blind.code == 0
    assert "give the app that has the key" in blind.out
    assert "xyzzy" not in blind.out
    assert '{"word": "xyzzy"}' in ask("jobs", "show", job, "-A", "sealed:app").out


@pytest.mark.slow
def test_a_terminal_without_unicode_still_gets_its_answer(call: Any, put: Any) -> None:
    job = put("greet", name="Zoë", run=False)
    shown = call("jobs", "show", job, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0, shown.stderr
    facts = json.loads(call("jobs", "show", job, "--json", PYTHONIOENCODING="ascii").stdout)
    assert facts["payload"] == {"name": "Zoë"}
    assert call("check", PYTHONIOENCODING="ascii").returncode == 0
