"""`windlass jobs`: list, follow and control jobs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.worker.spy_store import SpyStore

from windlass import Windlass, WorkerConfig
from windlass.cli.commands.jobs.show import OUTCOMES
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.state import RESCUING, SETTLING, Trigger
from windlass.stores import open_store
from windlass.worker.loops.presence import Presence


def test_jobs_are_listed_newest_first(run_cli: Any, enqueue_job: Any) -> None:
    first = enqueue_job("add", a=1)
    second = enqueue_job("broken", why="rust")
    lines = run_cli("jobs", "list").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert "failed" in lines[1]
    assert "ValueError" in lines[1]
    assert "succeeded" in lines[2]


def test_a_list_is_filtered_by_state_queue_task_tag_and_error(
    run_cli: Any, enqueue_job: Any
) -> None:
    good = enqueue_job("add", a=1, options={"tags": ("blue", "big")})
    bad = enqueue_job("broken", why="rust")
    held = enqueue_job("greet", name="x", run=False, options={"hold": True, "queue": "slow"})

    def ids(*filters: str) -> list[str]:
        return [job["id"] for job in run_cli("jobs", "list", "--json", *filters).json["jobs"]]

    assert ids("--state", "failed") == [bad]
    assert ids("--state", "failed", "--state", "succeeded") == [bad, good]
    assert ids("--queue", "slow") == [held]
    assert ids("--task", "tasks.add") == [good]
    assert ids("--tag", "big", "--tag", "blue") == [good]
    assert ids("--error", "ValueError") == [bad]
    assert ids("--error", "KeyError") == []


def test_a_list_shows_when_a_delayed_job_is_scheduled(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1, run=False, options={"delay": "2h"})
    assert "scheduled in 1h" in run_cli("jobs", "list").out
    assert "  scheduled for    2" in run_cli("jobs", "show", job).out


def test_a_long_list_is_paged(run_cli: Any, enqueue_job: Any) -> None:
    made = [enqueue_job("add", a=n, run=False) for n in range(3)]
    page = run_cli("jobs", "list", "--json", "--limit", "2").json
    rest = run_cli("jobs", "list", "--json", "--limit", "2", "--cursor", page["cursor"]).json
    assert [job["id"] for job in page["jobs"] + rest["jobs"]] == made[::-1]
    assert rest["cursor"] is None


@pytest.mark.parametrize("width", ["30", "44", "79", "80", "200"])
def test_ids_are_never_cut_in_a_narrow_terminal(
    run_cli: Any, enqueue_job: Any, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    job = enqueue_job("add", a=1)
    monkeypatch.setenv("COLUMNS", width)
    answer = run_cli("jobs", "list")
    assert job in answer.out
    assert "succeeded" in answer.out


def test_all_details_of_a_job_are_shown(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("broken", why="rust [here]")
    answer = run_cli("jobs", "show", job)
    for part in (job, "failed", "tasks.broken", '{"why": "rust [here]"}', "ValueError: rust [here]",
                 "failed: ValueError", "failed, retried", "arguments", "retry the"):  # fmt: skip
        assert part in answer.out, part
    facts = run_cli("jobs", "show", job, "--json").json
    assert facts["arguments"] == {"why": "rust [here]"}
    assert facts["lastError"]["message"] == "rust [here]"
    assert [one["outcome"] for one in facts["attempts"]] == ["retry", "fail"]


def test_every_end_of_an_attempt_has_a_text() -> None:
    assert OUTCOMES.keys() == SETTLING | RESCUING | {Trigger.CANCEL}


def test_a_job_is_found_by_the_end_of_its_id(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1)
    assert run_cli("jobs", "show", job[-8:], "--json").json["id"] == job
    assert run_cli("jobs", "show", job[:30], "--json").json["id"] == job


def test_an_ambiguous_part_of_an_id_is_refused(run_cli: Any, enqueue_job: Any) -> None:
    ids = [enqueue_job("add", a=n, run=False) for n in range(2)]
    answer = run_cli("jobs", "show", ids[0][:5])
    assert answer.code == 2
    assert "2 recent jobs start or end with" in answer.err
    assert "give more of the id" in answer.err


def test_an_invalid_id_and_a_missing_job_are_different_errors(
    run_cli: Any, enqueue_job: Any
) -> None:
    enqueue_job("add", a=1)
    assert run_cli("jobs", "show", "nonsense").code == 2
    assert run_cli("jobs", "show", "abc").code == 2
    missing = str(uuid7())
    answer = run_cli("jobs", "show", missing)
    assert answer.code == 1
    assert f"no job {missing}" in answer.err


def test_watching_a_job_prints_its_events_and_its_result(run_cli: Any, enqueue_job: Any) -> None:
    answer = run_cli("jobs", "watch", enqueue_job("film", title="Sea"))
    assert answer.code == 0
    words = answer.out.splitlines()
    assert "created" in words[0]
    assert any("running attempt 1" in line for line in words)
    assert any(line.endswith("info writing [the] script") for line in words)
    assert 'result: {"file": "Sea"}' in words[-1]


def test_watching_a_job_that_failed_is_exit_code_one(run_cli: Any, enqueue_job: Any) -> None:
    answer = run_cli("jobs", "watch", enqueue_job("broken", why="rust"))
    assert answer.code == 1
    assert "ValueError: rust" in answer.out.splitlines()[-1]


def test_watching_as_json_is_one_event_per_line_without_gaps(
    run_cli: Any, enqueue_job: Any
) -> None:
    answer = run_cli("jobs", "watch", enqueue_job("film", title="Sea"), "--json")
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "job-completed"
    assert events[-1]["data"]["output"] == {"file": "Sea"}


def test_the_log_of_a_waiting_job_ends_without_following(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1, run=False)
    lines = run_cli("jobs", "logs", job).out.splitlines()
    assert [line.split()[1] for line in lines] == ["created", "queued"]
    assert run_cli("jobs", "logs", job, "--after", "1").out.count("\n") == 1
    assert run_cli("jobs", "logs", job, "--after", "2").out == ""


def test_a_held_job_is_submitted_once(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1, run=False, options={"hold": True})
    assert "held" in run_cli("jobs", "list").out
    assert run_cli("jobs", "submit", job, "--json").json == [{"id": job, "state": "queued"}]
    other = enqueue_job("add", a=1)
    answer = run_cli("jobs", "submit", other)
    assert answer.code == 1
    assert "is succeeded and cannot be submitted" in answer.err


def test_a_waiting_job_is_canceled_with_its_reason(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1, run=False)
    assert run_cli("jobs", "cancel", job, "--reason", "too late").code == 0
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["state"], facts["cancelReason"]) == ("canceled", "too late")


def test_a_refused_job_does_not_stop_the_others(run_cli: Any, enqueue_job: Any) -> None:
    done, waiting = enqueue_job("add", a=1), enqueue_job("add", a=2, run=False)
    answer = run_cli("jobs", "cancel", done, waiting, "--json")
    assert answer.code == 1
    assert [one.get("code") for one in answer.json] == ["conflict", None]
    assert run_cli("jobs", "show", waiting, "--json").json["state"] == "canceled"


@pytest.mark.parametrize("as_json", [True, False])
def test_results_are_printed_when_the_store_fails_midway(
    run_cli: Any, enqueue_job: Any, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    jobs = [enqueue_job("add", a=n, run=False) for n in range(3)]
    calls = []

    def look(verb: str) -> None:
        if verb == "apply":
            calls.append(verb)
            if len(calls) == 2:
                raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(
        "windlass.cli.store_connection.open_store", lambda url: SpyStore(open_store(url), look)
    )
    answer = run_cli("jobs", "cancel", *jobs, *(["--json"] if as_json else []))
    assert answer.code == 3
    assert "the disk is gone" in answer.err
    assert f"not attempted: {jobs[2]}" in answer.err
    if as_json:
        results = [(one["id"], one.get("code")) for one in answer.json]
        assert results == [(jobs[0], None), (jobs[1], "store_unavailable")]
    else:
        assert answer.out == f"{jobs[0]} canceled\n"


def test_why_prints_reasons_with_advice(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("add", a=1, run=False, options={"hold": True, "delay": "1h"})
    answer = run_cli("jobs", "why", job[-8:])
    assert answer.code == 0
    assert "Held until it is submitted" in answer.out
    assert f"→ windlass jobs submit {job}" in answer.out
    assert "(in 59m)" in answer.out
    facts = run_cli("jobs", "why", job, "--json").json
    assert (facts["id"], facts["state"]) == (job, "created")
    assert [one["code"] for one in facts["reasons"]] == ["held", "scheduled"]
    assert [one["at"] is None for one in facts["reasons"]] == [True, False]
    assert (
        run_cli("jobs", "why", enqueue_job("add", a=1))
        .out.splitlines()[1]
        .startswith("  Succeeded at")
    )


async def show_worker(url: str) -> None:
    async with open_store(url) as store:
        config = WorkerConfig(name="mill-1", queues={"default": 3, "media": 1})
        app = Windlass("memory:")
        await Presence(
            store, app.tasks, config, running=lambda: 2, last_claim=lambda: None
        ).publish()


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_live_workers_are_listed(
    run_cli: Any, enqueue_job: Any, project_dir: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    job = enqueue_job("add", a=1, run=False)
    assert "No running workers" in run_cli("workers", "list").err
    assert run_cli("workers", "list", "--json").json == {"workers": []}
    asyncio.run(show_worker(f"sqlite:///{project_dir}/windlass.db"))
    shown = run_cli("workers", "list").out
    for part in ("mill-1", "never", "default=3,media=1"):
        assert part in shown
    [facts] = run_cli("workers", "list", "--json").json["workers"]
    assert (facts["name"], facts["queues"], facts["running"]) == (
        "mill-1", {"default": 3, "media": 1}, 2,
    )  # fmt: skip
    assert facts["lastClaimAt"] is None
    assert run_cli("jobs", "why", job, "--json").json["reasons"][0]["code"] == "unknown_task"


def test_a_retry_is_a_new_job_that_refers_to_the_old_one(run_cli: Any, enqueue_job: Any) -> None:
    job = enqueue_job("broken", why="rust")
    [answer] = run_cli("jobs", "retry", job, "--json").json
    new = run_cli("jobs", "show", answer["id"], "--json").json
    assert (new["retryOf"], new["state"], new["arguments"]) == (job, "queued", {"why": "rust"})
    assert run_cli("jobs", "show", job, "--json").json["retriedAs"] == new["id"]
    again = run_cli("jobs", "retry", job)
    assert again.code == 0
    assert f"already retried as {new['id']}" in again.out


def test_a_resumed_job_continues_after_its_last_step(
    run_cli: Any, enqueue_job: Any, project_dir: Path
) -> None:
    job = enqueue_job("stepped")
    assert "jobs resume" in run_cli("jobs", "show", job).out
    (project_dir / "fixed").touch()
    [answer] = run_cli("jobs", "resume", job, "--json").json
    enqueue_job("add", a=1)  # and run all waiting jobs
    assert run_cli("jobs", "show", answer["id"], "--json").json["result"] == "done"
    assert (project_dir / "pieces").read_text() == "x"


def test_a_job_without_steps_cannot_be_resumed_only_retried(run_cli: Any, enqueue_job: Any) -> None:
    answer = run_cli("jobs", "resume", enqueue_job("broken", why="rust"))
    assert answer.code == 1
    assert "has no completed step to resume from; retry it instead" in answer.err


def test_only_finished_jobs_are_deleted(run_cli: Any, enqueue_job: Any) -> None:
    done, waiting = enqueue_job("add", a=1), enqueue_job("add", a=2, run=False)
    answer = run_cli("jobs", "delete", done, waiting)
    assert answer.code == 1
    assert f"{done} deleted" in answer.out
    assert "is queued; cancel it before deleting it" in answer.err
    assert run_cli("jobs", "show", done).code == 1
    assert run_cli("jobs", "show", waiting).code == 0


def test_listing_jobs_creates_no_database(run_cli: Any, project_dir: Path) -> None:
    answer = run_cli("jobs", "list")
    assert answer.code == 3
    assert f"No database at {project_dir}/windlass.db" in answer.err
    assert not (project_dir / "windlass.db").exists()


def test_jobs_in_memory_cannot_be_listed(run_cli: Any) -> None:
    answer = run_cli("jobs", "list", "--url", "memory:")
    assert answer.code == 2
    assert "sqlite:///jobs.db" in answer.err


SEALED = """
from windlass import EncryptingCodec, Windlass

app = Windlass(codec=EncryptingCodec({"k": b"0" * 32}))

@app.task
def secret(word: str) -> str:
    return word
"""


def test_encrypted_values_are_decrypted_only_with_the_app(run_cli: Any, project_dir: Path) -> None:
    (project_dir / "sealed.py").write_text(SEALED)
    job = run_cli("enqueue", "secret", "word=xyzzy", "-A", "sealed:app", "--json").json["id"]
    blind = run_cli("jobs", "show", job)
    assert blind.code == 0
    assert "give the app that has the key" in blind.out
    assert "xyzzy" not in blind.out
    facts = run_cli("jobs", "show", job, "--json").json
    assert (facts["arguments"], facts["sealed"]) == (None, True)
    assert '{"word": "xyzzy"}' in run_cli("jobs", "show", job, "-A", "sealed:app").out


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_output_with_replacements(
    run_process: Any, enqueue_job: Any
) -> None:
    job = enqueue_job("greet", name="Zoë", run=False)
    shown = run_process("jobs", "show", job, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0, shown.stderr
    facts = json.loads(run_process("jobs", "show", job, "--json", PYTHONIOENCODING="ascii").stdout)
    assert facts["arguments"] == {"name": "Zoë"}
    assert run_process("check", PYTHONIOENCODING="ascii").returncode == 0
