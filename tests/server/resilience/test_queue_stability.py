"""Queue stability over HTTP: the fourteen points of the specification, in order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import LiveServer, enqueue, exists, until, wait_for
from tests.server.resilience.conftest import (
    job_at_40_percent,
    job_directories,
    percents,
    read,
    run_to_end,
)

REPORTED = [0, 10, 25, 20, 30, 28, 50, 75, 100, 95]
SHOWN = [0, 10, 25, 25, 30, 30, 50, 75, 100, 100]
ORDER = ("createdAt", "queuedAt", "startedAt", "endedAt")
WAITING = {"running", "canceled"}  # states that follow `queued`
TRANSITIONS = {"queued": WAITING, "running": {"succeeded", "failed", "canceled"}}


def canceled(web: httpx.Client, place: Path) -> dict[str, Any]:
    """Return a job that was canceled at 40 %."""
    job = job_at_40_percent(web, place)
    web.post(f"/api/jobs/{job}/cancel")
    return wait_for(web, job, "canceled")


def test_01_progress_never_decreases(web: httpx.Client) -> None:
    _, found = run_to_end(web, "reports", percents=REPORTED)
    result = [item.data["progressPct"] for item in found if item.type == "step-progress"]
    assert result == SHOWN


def test_02_only_allowed_transitions_happen_and_final_states_are_kept(
    web: httpx.Client, tmp_path: Path
) -> None:
    jobs = [run_to_end(web, "add", a=1)[0], run_to_end(web, "refused")[0], canceled(web, tmp_path)]
    waiting = enqueue(web, "add", {"delay": 3600}, a=1)["id"]
    web.post(f"/api/jobs/{waiting}/cancel")
    jobs.append(wait_for(web, waiting, "canceled"))
    assert [job["state"] for job in jobs] == ["succeeded", "failed", "canceled", "canceled"]
    for job in jobs:
        result = [item.data["status"] for item in read(web, job["id"]) if "status" in item.data]
        result = result[result.index("queued") :] if "queued" in result else []
        for before, after in pairwise(result):
            assert after in TRANSITIONS[before]
        for verb in ("cancel", "submit"):
            web.post(f"/api/jobs/{job['id']}/{verb}")
        assert web.get(f"/api/jobs/{job['id']}").json() == job


def test_03_a_report_is_clamped_to_0_to_100_and_a_lower_one_is_ignored(
    web: httpx.Client,
) -> None:
    for reported, shown in ((75, 75), (50, 50), (25, 50), (-10, 50), (150, 100)):
        job, _ = run_to_end(web, "reports", percents=[50, reported], good=False)
        assert job["percent"] == shown


def test_04_the_files_of_a_job_are_removed_at_its_end(
    server: LiveServer, web: httpx.Client, tmp_path: Path
) -> None:
    job = job_at_40_percent(web, tmp_path)
    assert all(exists(place) for place in job_directories(server, job))
    (tmp_path / "gate").touch()
    read(web, job)
    until(
        lambda: not any(exists(place) for place in job_directories(server, job)),
        "the files are removed",
    )
    without, _ = run_to_end(web, "add", a=1)
    assert without["state"] == "succeeded"
    assert not any(exists(place) for place in job_directories(server, without["id"]))


def test_05_timestamps_are_in_order_for_a_success_and_a_cancel(
    web: httpx.Client, tmp_path: Path
) -> None:
    for job in (run_to_end(web, "add", a=1)[0], canceled(web, tmp_path)):
        instants = [job[name] for name in ORDER]
        assert None not in instants
        assert instants == sorted(instants)  # ISO 8601 in one zone sorts as text


def test_06_exactly_three_states_are_final(web: httpx.Client, tmp_path: Path) -> None:
    """A final job returns 204 after its last event; other jobs keep the stream open."""
    final = [run_to_end(web, "add", a=1)[0], run_to_end(web, "refused")[0], canceled(web, tmp_path)]
    waiting = enqueue(web, "add", {"delay": 3600}, a=1)
    (again := tmp_path / "again").mkdir()
    running = web.get(f"/api/jobs/{job_at_40_percent(web, again)}").json()
    statuses = {}
    for job in (*final, waiting, running):
        last = web.get(f"/api/jobs/{job['id']}/events").json()["cursor"]
        url, accept = f"/api/jobs/{job['id']}/events", "text/event-stream"
        with web.stream("GET", url, headers={"Accept": accept, "Last-Event-ID": last}) as response:
            statuses[job["state"]] = response.status_code
    assert statuses == dict.fromkeys(("succeeded", "failed", "canceled"), 204) | dict.fromkeys(
        (waiting["state"], "running"), 200
    )
    (again / "gate").touch()


def test_07_a_new_job_is_queued_when_it_is_created(web: httpx.Client) -> None:
    job = enqueue(web, "add", a=1)
    assert job["queuedAt"] == job["createdAt"] is not None


def check_end(web: httpx.Client, job: dict[str, Any], kind: str) -> None:
    """Check that `endedAt` is the time of the last event."""
    last = web.get(f"/api/jobs/{job['id']}/events", params={"limit": 1000}).json()["events"][-1]
    assert (last["type"], last["at"]) == (kind, job["endedAt"])


def test_08_a_succeeded_job_has_an_end_time(web: httpx.Client) -> None:
    check_end(web, run_to_end(web, "add", a=1)[0], "job-completed")


def test_09_a_retried_job_has_an_end_time_only_after_it_succeeded(
    web: httpx.Client,
) -> None:
    job, found = run_to_end(web, "second time")
    assert [item.data["status"] for item in found if item.type == "job-status"].count(
        "running"
    ) == 2
    assert all("endedAt" not in item.data for item in found[:-1])
    check_end(web, job, "job-completed")


def test_10_a_failed_job_has_an_end_time(web: httpx.Client) -> None:
    check_end(web, run_to_end(web, "refused")[0], "job-failed")


def test_11_a_canceled_job_has_an_end_time(web: httpx.Client, tmp_path: Path) -> None:
    check_end(web, canceled(web, tmp_path), "job-cancelled")


def test_12_the_timestamps_of_a_success_are_set_one_after_the_other(
    web: httpx.Client, tmp_path: Path
) -> None:
    held = enqueue(web, "video", {"hold": True}, gate=str(tmp_path / "gate"))
    assert (held["startedAt"], held["endedAt"]) == (None, None)
    web.post(f"/api/jobs/{held['id']}/submit")
    running = wait_for(web, held["id"], "running")
    assert running["startedAt"] is not None
    assert running["endedAt"] is None
    (tmp_path / "gate").touch()
    done = wait_for(web, held["id"], "succeeded")
    assert done["createdAt"] <= done["queuedAt"] <= done["startedAt"] <= done["endedAt"]
    assert (done["startedAt"], done["percent"]) == (running["startedAt"], 100)


def test_13_a_job_canceled_at_40_percent_keeps_its_percent_and_ends_at_the_cancel(
    web: httpx.Client, tmp_path: Path
) -> None:
    job = canceled(web, tmp_path)
    assert (job["percent"], job["result"]) == (40, None)
    assert job["startedAt"] <= job["canceledAt"] == job["endedAt"]
    found = read(web, job["id"])
    assert percents(found)[-1] == 40
    assert "job-completed" not in {item.type for item in found}


@pytest.mark.parametrize("resumes", [True, False])
def test_14_a_job_shows_whether_it_can_be_resumed_and_its_last_step(
    web: httpx.Client, tmp_path: Path, resumes: bool
) -> None:
    notes, success_file = tmp_path / "notes", tmp_path / "success_file"
    if not resumes:
        early, _ = run_to_end(web, "refused")
        assert (early["canResume"], early["lastCompletedStep"]) == (False, None)
        assert web.post(f"/api/jobs/{early['id']}/resume").status_code == 409
        return
    job, _ = run_to_end(web, "pipeline", notes=str(notes), success_file=str(success_file))
    assert (job["canResume"], job["lastCompletedStep"]) == (True, "visuals")
    notes.unlink()
    success_file.touch()
    again = web.post(f"/api/jobs/{job['id']}/resume").json()
    wait_for(web, again["id"], "succeeded")
    assert notes.read_text().split() == ["render"]
