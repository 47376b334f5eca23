"""Monitoring over HTTP: queues, tasks, limits, statistics, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import LiveServer, enqueue, wait_for

from windlass.core.admission.limit import Limit


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_queues_are_listed_paused_and_resumed(web: httpx.Client) -> None:
    enqueue(web, "add", {"queue": "a/b c"}, a=1)
    place = "/api/queues/a%2Fb%20c"
    assert web.post(f"{place}/pause").json() == {"name": "a/b c", "paused": True}
    [found] = [
        queue for queue in web.get("/api/queues").json()["queues"] if queue["name"] == "a/b c"
    ]
    assert found["paused"]
    assert found["counts"]["queued"] == 1
    assert found["oldestAge"] >= 0
    assert web.post(f"{place}/resume").json()["paused"] is False
    assert web.post(f"/api/queues/{'x' * 200}/pause").status_code == 422


def test_tasks_are_listed_with_their_json_schemas(web: httpx.Client) -> None:
    tasks = {task["name"]: task for task in web.get("/api/tasks").json()["tasks"]}
    assert set(tasks) == {"add", "film", "broken", "stepped"}
    assert tasks["add"]["arguments"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert tasks["add"]["result"] == {"type": "integer"}
    assert tasks["broken"]["maxRetries"] == 1


def test_limits_are_listed_with_used_slots_and_waiting_counts(
    server: LiveServer, web: httpx.Client
) -> None:
    server.app.limits.set("queue:narrow", Limit(concurrency=1, rate="5/1m"))
    server.app.limits.set("key:add", Limit(concurrency=2))
    try:
        for number in range(3):
            enqueue(web, "add", {"queue": "narrow"}, a=number)
        limits = {limit["name"]: limit for limit in web.get("/api/limits").json()["limits"]}
    finally:
        for name in ("queue:narrow", "key:add"):
            server.app.limits.remove(name)
    facts = {"concurrency": 1, "starts": 5, "period": 60.0}
    assert limits["queue:narrow"] == {
        "name": "queue:narrow", "limit": facts, "declared": None, "override": facts,
        "inUse": 1, "waiting": 2, "capped": False,
    }  # fmt: skip
    assert (limits["key:add"]["inUse"], limits["key:add"]["waiting"]) == (None, None)


def test_statistics_are_summed_by_step_and_group(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        for number in range(3):
            wait_for(web, enqueue(web, "add", a=number)["id"], "succeeded")
        result = web.get("/api/stats", params={"step": 3600}).json()
        rows = [
            row for row in result["rows"] if (row["task"], row["outcome"]) == ("add", "succeeded")
        ]
        assert sum(row["count"] for row in rows) == 3
        assert rows[0]["meanRun"] >= 0
        for by, names in (("queue", ("default", None)), ("task", (None, "add")),
                          ("none", (None, None))):  # fmt: skip
            request_params = {
                "step": 86_400,
                "by": by,
                "since": result["since"],
                "until": result["until"],
            }
            summed = web.get("/api/stats", params=request_params).json()["rows"]
            good = [item for item in summed if item["outcome"] == "succeeded"]
            assert len({(item["queue"], item["task"]) for item in good}) == len(good)
            assert names in [(item["queue"], item["task"]) for item in good]
            every = [row for row in result["rows"] if row["outcome"] == "succeeded"]
            assert sum(item["count"] for item in good) == sum(item["count"] for item in every)
            spent = sum(item["count"] * item["meanRun"] for item in every)
            assert sum(item["count"] * item["meanRun"] for item in good) == pytest.approx(spent)
        assert web.get("/api/stats", params={"by": "moon"}).status_code == 422
        for params in ({"step": "90"}, {"since": "2026-01-01T00:00:00"},
                       {"since": "2020-01-01T00:00:00Z"}, {"until": "1999-01-01T00:00:00Z",
                        "since": "2000-01-01T00:00:00Z"}):  # fmt: skip
            assert web.get("/api/stats", params=params).status_code == 422, params


def test_metrics_have_the_prometheus_text_format(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        enqueue(web, "add", {"queue": 'q"\\\n'}, a=1)
        response = web.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        label = r'\w+="([^"\\\n]|\\["\\n])*"'
        line = re.compile(rf"(# (HELP|TYPE) .+|\w+(\{{{label}(,{label})*\}})? \S+)")
        for text in response.text.splitlines():
            assert line.fullmatch(text), text
        assert 'windlass_jobs{queue="q\\"\\\\\\n",state="queued"} 1' in response.text
        assert "windlass_event_streams 0" in response.text
