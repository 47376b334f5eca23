"""Queues, workers, tasks, flows, schedules, numbers, health: what surrounds jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import Served, enqueue, serving, until, wait_for

from windlass.core.admission.limit import Limit
from windlass.core.worker_presence import LiveWorker
from windlass.server.routes.route_table import ROUTES
from windlass.task import Task


@pytest.fixture
def web(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_queues_are_told_and_paused_and_resumed(web: httpx.Client) -> None:
    enqueue(web, "add", {"queue": "a/b c"}, a=1)
    place = "/api/queues/a%2Fb%20c"
    assert web.post(f"{place}/pause").json() == {"name": "a/b c", "paused": True}
    [found] = [one for one in web.get("/api/queues").json()["queues"] if one["name"] == "a/b c"]
    assert found["paused"]
    assert found["counts"]["queued"] == 1
    assert found["oldestAge"] >= 0
    assert web.post(f"{place}/resume").json()["paused"] is False
    assert web.post(f"/api/queues/{'x' * 200}/pause").status_code == 422


def test_tasks_are_told_with_the_schemas_of_their_arguments(web: httpx.Client) -> None:
    tasks = {one["name"]: one for one in web.get("/api/tasks").json()["tasks"]}
    assert set(tasks) == {"add", "film", "broken", "stepped"}
    assert tasks["add"]["arguments"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert tasks["add"]["result"] == {"type": "integer"}
    assert tasks["broken"]["maxRetries"] == 1


def test_a_flow_is_told_as_a_whole(served: Served, web: httpx.Client) -> None:
    flow = served.app.flow()
    add = served.app.tasks.get("add")
    assert add is not None
    task: Task[..., int] = Task(served.app, add)
    first = flow.add(task, a=1)
    flow.add(task, a=first.result)
    run = flow.enqueue()
    told = web.get(f"/api/flows/{run.id}").json()
    assert told["counts"] == {"queued": 1, "created": 1}
    [last, parent] = told["jobs"]
    assert last["dependsOn"] == [parent["id"]]
    assert web.get(f"/api/flows/{uuid4()}").status_code == 404
    assert web.get("/api/flows/x").status_code == 422


def test_limits_are_told_with_who_holds_and_who_waits(served: Served, web: httpx.Client) -> None:
    served.app.limits.set("queue:narrow", Limit(concurrency=1, rate="5/1m"))
    served.app.limits.set("key:add", Limit(concurrency=2))
    try:
        for number in range(3):
            enqueue(web, "add", {"queue": "narrow"}, a=number)
        limits = {one["name"]: one for one in web.get("/api/limits").json()["limits"]}
    finally:
        for name in ("queue:narrow", "key:add"):
            served.app.limits.remove(name)
    facts = {"concurrency": 1, "starts": 5, "period": 60.0}
    assert limits["queue:narrow"] == {
        "name": "queue:narrow", "limit": facts, "declared": None, "override": facts,
        "holding": 1, "waiting": 2, "capped": False,
    }  # fmt: skip
    assert (limits["key:add"]["holding"], limits["key:add"]["waiting"]) == (None, None)


def test_schedules_are_added_paused_run_and_deleted(web: httpx.Client) -> None:
    body = {"name": "every night", "task": "add", "arguments": {"a": 1}, "cron": "0 3 * * *"}
    made = web.post("/api/schedules", json=body)
    assert made.status_code == 201
    planned = made.json()
    assert planned["nextTick"].endswith("03:00:00Z")
    ticks = [datetime.fromisoformat(one) for one in planned["nextTicks"]]
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
    assert [one["name"] for one in web.get("/api/schedules").json()["schedules"]] == ["every night"]
    assert web.delete(place).status_code == 204
    assert web.get(place).status_code == 404
    for verb in ("pause", "resume", "run"):
        assert web.post(f"{place}/{verb}").status_code == 404


@pytest.mark.slow
def test_a_schedule_tells_the_last_job_that_it_made(tmp_path: Path) -> None:
    with serving(tmp_path, worker=True) as served, served.client() as web:
        body = {"name": "often", "task": "add", "arguments": {"a": 1}, "every": "1s"}
        assert web.post("/api/schedules", json=body).status_code == 201
        until(lambda: web.get("/api/schedules/often").json()["lastJobId"], "it ticks")
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
def test_a_schedule_that_is_wrong_is_refused(web: httpx.Client, wrong: dict[str, object]) -> None:
    body = {"name": "w", "task": "add", "arguments": {"a": 1}, "cron": "0 3 * * *"}
    assert web.post("/api/schedules", json=body | wrong).status_code == 422
    assert web.get("/api/schedules/w").status_code == 404


def test_numbers_over_time_are_added_up_by_step(working: Served) -> None:
    with working.client() as web:
        for number in range(3):
            wait_for(web, enqueue(web, "add", a=number)["id"], "succeeded")
        told = web.get("/api/stats", params={"step": 3600}).json()
        lines = [
            one for one in told["rows"] if (one["task"], one["outcome"]) == ("add", "succeeded")
        ]
        assert sum(one["count"] for one in lines) == 3
        assert lines[0]["meanRun"] >= 0
        for by, names in (("queue", ("default", None)), ("task", (None, "add")),
                          ("none", (None, None))):  # fmt: skip
            asked = {"step": 86_400, "by": by, "since": told["since"], "until": told["until"]}
            summed = web.get("/api/stats", params=asked).json()["rows"]
            good = [one for one in summed if one["outcome"] == "succeeded"]
            assert len({(one["queue"], one["task"]) for one in good}) == len(good)
            assert names in [(one["queue"], one["task"]) for one in good]
            every = [one for one in told["rows"] if one["outcome"] == "succeeded"]
            assert sum(one["count"] for one in good) == sum(one["count"] for one in every)
            spent = sum(one["count"] * one["meanRun"] for one in every)
            assert sum(one["count"] * one["meanRun"] for one in good) == pytest.approx(spent)
        assert web.get("/api/stats", params={"by": "moon"}).status_code == 422
        for params in ({"step": "90"}, {"since": "2026-01-01T00:00:00"},
                       {"since": "2020-01-01T00:00:00Z"}, {"until": "1999-01-01T00:00:00Z",
                        "since": "2000-01-01T00:00:00Z"}):  # fmt: skip
            assert web.get("/api/stats", params=params).status_code == 422, params


def test_metrics_are_in_the_text_format(working: Served) -> None:
    with working.client() as web:
        enqueue(web, "add", {"queue": 'q"\\\n'}, a=1)
        answer = web.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        label = r'\w+="([^"\\\n]|\\["\\n])*"'
        line = re.compile(rf"(# (HELP|TYPE) .+|\w+(\{{{label}(,{label})*\}})? \S+)")
        for text in answer.text.splitlines():
            assert line.fullmatch(text), text
        assert 'windlass_jobs{queue="q\\"\\\\\\n",state="queued"} 1' in answer.text
        assert "windlass_event_streams 0" in answer.text


def test_a_server_whose_worker_takes_jobs_is_ready(working: Served) -> None:
    with working.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "it is ready")
        assert web.get("/healthz").json()["status"] == "ok"
        assert [one["unresponsive"] for one in web.get("/api/workers").json()["workers"]] == [False]


def test_a_server_whose_worker_shows_no_life_is_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path, worker=True) as served, served.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "it is ready")
        with served.app._worker_context(served.loop):  # one more, that never wrote its record
            answer = web.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")


def test_a_server_whose_worker_is_deaf_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, worker=True) as served, served.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "it is ready")
        monkeypatch.setattr(LiveWorker, "unresponsive", True)
        answer = web.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")


def test_a_server_whose_store_is_gone_is_alive_and_not_ready(tmp_path: Path) -> None:
    with serving(tmp_path) as served, served.client() as web:
        assert web.get("/readyz").status_code == 200
        served.app._closed = True
        answer = web.get("/api/jobs")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
        assert answer.headers["retry-after"] == "1"
        assert web.get("/readyz").status_code == 503
        assert web.get("/healthz").status_code == 200
        served.app._closed = False


def test_the_document_describes_every_route(web: httpx.Client) -> None:
    document = web.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for route in ROUTES:
        path = route.path.replace(":path", "")
        if route.internal:
            assert path not in document["paths"]
            continue
        told = document["paths"][path][route.method.lower()]
        assert told["summary"]
        assert str(route.status) in told["responses"]
        for status in route.problems:
            assert "application/problem+json" in told["responses"][str(status)]["content"]
    assert "Problem" in document["components"]["schemas"]
    told = document["paths"]["/api/jobs/{id}/events"]["get"]["responses"]
    assert {"application/json", "text/event-stream"} == told["200"]["content"].keys()
    assert {"200", "204", "404"} <= told.keys()
    text = str(document)
    assert not re.search(r"'\w+_\w+': \{'(type|anyOf|format)", text)  # camelCase throughout
