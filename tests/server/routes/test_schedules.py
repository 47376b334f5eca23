"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import LiveServer, run_server, until, wait_for


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_schedules_are_created_paused_run_and_deleted(web: httpx.Client) -> None:
    body = {"name": "every night", "task": "add", "arguments": {"a": 1}, "cron": "0 3 * * *"}
    created = web.post("/api/schedules", json=body)
    assert created.status_code == 201
    planned = created.json()
    assert planned["nextTick"].endswith("03:00:00Z")
    ticks = [datetime.fromisoformat(tick) for tick in planned["nextTicks"]]
    assert planned["nextTicks"][0] == planned["nextTick"]
    days = [after - before for before, after in pairwise(ticks)]
    assert days == [timedelta(days=1)] * 4
    assert (planned["queue"], planned["arguments"]) == ("default", {"a": 1})
    assert (planned["lastTick"], planned["lastJobId"]) == (None, None)
    assert web.post("/api/schedules", json=body).status_code == 409
    place = "/api/schedules/every%20night"
    assert web.get(place).json()["cron"] == "0 3 * * *"
    paused = web.post(f"{place}/pause").json()
    assert (paused["nextTick"], paused["nextTicks"]) == (None, [])
    assert web.post(f"{place}/resume").json()["paused"] is False
    job = web.post(f"{place}/run")
    assert (job.status_code, job.json()["headers"]["schedule"]) == (201, "every night")
    assert [schedule["name"] for schedule in web.get("/api/schedules").json()["schedules"]] == [
        "every night"
    ]
    assert web.delete(place).status_code == 204
    assert web.get(place).status_code == 404
    for verb in ("pause", "resume", "run"):
        assert web.post(f"{place}/{verb}").status_code == 404


@pytest.mark.slow
def test_a_schedule_shows_its_last_job(tmp_path: Path) -> None:
    with run_server(tmp_path, worker=True) as server, server.client() as web:
        body = {"name": "often", "task": "add", "arguments": {"a": 1}, "every": "1s"}
        assert web.post("/api/schedules", json=body).status_code == 201
        until(
            lambda: web.get("/api/schedules/often").json()["lastJobId"],
            "the schedule has created a job",
        )
        planned = web.post("/api/schedules/often/pause").json()
        job = wait_for(web, planned["lastJobId"], "succeeded")
        assert job["headers"]["schedule"] == "often"
        assert job["headers"]["schedule-tick"] == planned["lastTick"]
        web.delete(f"/api/jobs/{job['id']}")
        assert web.get("/api/schedules/often").json()["lastJobId"] is None


@pytest.mark.parametrize(
    "wrong",
    [{"cron": "often"}, {"cron": None}, {"every": "5m"}, {"missed": "never"}, {"tz": "Mars"},
     {"task": "nope"}, {"arguments": {}}],
    ids=str,
)  # fmt: skip
def test_an_invalid_schedule_is_rejected(web: httpx.Client, wrong: dict[str, object]) -> None:
    body = {"name": "w", "task": "add", "arguments": {"a": 1}, "cron": "0 3 * * *"}
    assert web.post("/api/schedules", json=body | wrong).status_code == 422
    assert web.get("/api/schedules/w").status_code == 404
