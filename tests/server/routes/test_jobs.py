"""Jobs over HTTP: enqueue, list and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import LiveServer, enqueue, wait_for

from windlass.core.admission.limit import Limit
from windlass.core.ids import uuid7


@pytest.fixture
def web(server: LiveServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def test_a_new_job_is_stored_and_returned(web: httpx.Client) -> None:
    response = web.post("/api/jobs", json={"task": "add", "arguments": {"a": 1}, "tags": ["x"]})
    assert response.status_code == 201
    job = response.json()
    assert job["state"] == "queued"
    assert job["arguments"] == {"a": 1}
    assert job["createdAt"] == job["queuedAt"]
    assert job["createdAt"].endswith("Z")
    assert not job["duplicate"]
    assert response.headers["location"] == f"/api/jobs/{job['id']}"
    again = web.get(response.headers["location"])
    assert again.status_code == 200
    assert again.json()["tags"] == ["x"]


def test_the_same_idempotency_key_is_the_same_job(web: httpx.Client) -> None:
    body, key = {"task": "add", "arguments": {"a": 1}}, {"Idempotency-Key": "once"}
    first = web.post("/api/jobs", json=body, headers=key)
    second = web.post("/api/jobs", json=body, headers=key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert second.json()["duplicate"]
    other = web.post("/api/jobs", json={"task": "add", "arguments": {"a": 2}}, headers=key)
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"
    assert len(web.get("/api/jobs", params={"requestId": "once"}).json()["jobs"]) == 1


def test_a_repeated_enqueue_with_the_same_id_returns_the_same_job(web: httpx.Client) -> None:
    body = {"task": "add", "arguments": {"a": 1}, "id": str(uuid7())}
    first, second = web.post("/api/jobs", json=body), web.post("/api/jobs", json=body)
    assert first.status_code == second.status_code == 201
    assert first.json()["id"] == second.json()["id"] == body["id"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"task": "nope"}, "task", "this app has"),
        ({"task": "add", "arguments": {"b": 1}}, "arguments.a", "required"),
        ({"task": "add", "arguments": {"a": "one"}}, "arguments.a", "integer"),
        ({"task": "add", "arguments": {"a": 1, "c": 2}}, "arguments.c", "takes 'a', 'b'"),
        ({"task": "add", "arguments": {"a": 1}, "dely": 3}, "dely", "not permitted"),
        ({"task": "add", "arguments": {"a": 1}, "delay": "soon"}, "delay", "soon"),
        ({"task": "add", "arguments": {"a": 1}, "runAt": "2026-01-01T00:00:00"}, "runAt", "zone"),
        ({"task": "add", "arguments": {"a": 1}, "priority": "high"}, "priority", "integer"),
        ({"arguments": {}}, "task", "required"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_invalid_value_is_reported_by_field_and_reason(
    web: httpx.Client, body: dict[str, object], field: str, words: str
) -> None:
    response = web.post("/api/jobs", json=body)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    result = response.json()
    assert result["errors"][0]["field"] == field
    assert words in result["errors"][0]["message"]
    assert words in result["detail"]
    assert result["type"] == "urn:windlass:problem:invalid_argument"
    assert result["advice"]
    assert result["instance"] == "/api/jobs"


def test_invalid_json_is_rejected_with_a_clear_problem(web: httpx.Client) -> None:
    post = "/api/jobs"
    response = web.post(post, content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "body")
    assert web.get("/api/jobs/").status_code == 404  # no redirect
    empty = {"Idempotency-Key": ""}
    assert web.post(post, json={"task": "add"}, headers=empty).status_code == 422
    assert web.post(post, content=b"a=1", headers={"Content-Type": "text/plain"}).status_code == 415
    nan = b'{"task": "add", "arguments": {"a": NaN}}'
    response = web.post(post, content=nan, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    deep = b'{"task": "add", "arguments": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    response = web.post(post, content=deep, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert "nested" in response.json()["detail"]


def test_the_size_of_a_request_is_limited(web: httpx.Client) -> None:
    big = {"task": "add", "arguments": {"a": "x" * (17 * 1024 * 1024)}}
    response = web.post("/api/jobs", json=big)
    assert response.status_code == 413
    chunks = (b"x" * 1024 * 1024 for _ in range(17))  # chunked, without Content-Length
    headers = {"Content-Type": "application/json"}
    assert web.post("/api/jobs", content=chunks, headers=headers).status_code == 413
    payload = {"task": "film", "arguments": {"gate": "x" * (2 * 1024 * 1024)}}
    response = web.post("/api/jobs", json=payload)
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


def test_a_batch_has_a_result_for_each_job(web: httpx.Client) -> None:
    jobs = [
        {"task": "add", "arguments": {"a": 1}, "requestId": "r"},
        {"task": "nope"},
        {"task": "add", "arguments": {"a": 1}, "requestId": "r"},
        {"task": "add", "arguments": {"a": 2}, "requestId": "r"},
        "what",
        {
            "task": "add",
            "arguments": {"a": 5},
            "dependsOn": ["01890a5d-ac96-774b-bcce-b302099a8057"],
        },
        {"task": "add", "arguments": {"a": 6}},
    ]
    before = len(web.get("/api/jobs").json()["jobs"])
    response = web.post("/api/jobs/batch", json={"jobs": jobs})
    assert response.status_code == 200
    found = response.json()["results"]
    assert [item["status"] for item in found] == [
        "created", "refused", "duplicate", "conflict", "refused", "refused", "created",
    ]  # fmt: skip
    assert found[0]["job"]["id"] == found[2]["job"]["id"]
    assert found[1]["problem"]["errors"][0]["field"] == "task"
    assert len(web.get("/api/jobs").json()["jobs"]) == before + 2


def test_a_batch_with_an_idempotency_key_can_be_repeated(web: httpx.Client) -> None:
    jobs = {"jobs": [{"task": "add", "arguments": {"a": n}} for n in range(3)]}
    first = web.post("/api/jobs/batch", json=jobs, headers={"Idempotency-Key": "b"}).json()
    again = web.post("/api/jobs/batch", json=jobs, headers={"Idempotency-Key": "b"}).json()
    ids = [[result["job"]["id"] for result in response["results"]] for response in (first, again)]
    assert ids[0] == ids[1]
    assert {result["status"] for result in again["results"]} == {"duplicate"}


def test_a_batch_that_is_too_long_enqueues_nothing(web: httpx.Client) -> None:
    jobs = [{"task": "add", "arguments": {"a": 1}, "queue": "long"}] * 1001
    response = web.post("/api/jobs/batch", json={"jobs": jobs})
    assert response.status_code == 422
    assert "1,000" in response.json()["detail"]
    assert web.get("/api/jobs", params={"queue": "long"}).json()["jobs"] == []


def test_jobs_are_filtered(web: httpx.Client) -> None:
    first = enqueue(web, "add", {"queue": "media", "tags": ["l", "b"], "owner": "o"}, a=1)
    second = enqueue(web, "add", {"hold": True, "tags": ["l"], "team": "t"}, a=2)

    def ids(**filters: Any) -> list[str]:
        response = web.get("/api/jobs", params={"tag": "l", **filters})
        assert response.status_code == 200, response.text
        return [job["id"] for job in response.json()["jobs"]]

    assert ids() == [second["id"], first["id"]]
    assert ids(state="created") == [second["id"]]
    assert ids(state=["created", "queued"]) == [second["id"], first["id"]]
    assert ids(queue="media") == ids(tag=["l", "b"]) == ids(owner="o") == [first["id"]]
    assert ids(team="t") == ids(createdFrom=second["createdAt"]) == [second["id"]]
    assert ids(createdTo=second["createdAt"]) == [first["id"]]
    assert ids(task="film") == []


def test_pages_are_stable_while_jobs_are_enqueued(web: httpx.Client) -> None:
    paged = {"queue": "paged"}
    ids = [enqueue(web, "add", paged, a=n)["id"] for n in range(5)]
    page = web.get("/api/jobs", params={"limit": 2, **paged}).json()
    seen = [job["id"] for job in page["jobs"]]
    while page["cursor"] is not None:
        enqueue(web, "add", paged, a=100)
        more = {"limit": 2, "cursor": page["cursor"], **paged}
        page = web.get("/api/jobs", params=more).json()
        seen += [job["id"] for job in page["jobs"]]
    assert seen == list(reversed(ids))


def test_an_invalid_filter_is_rejected(web: httpx.Client) -> None:
    for filters in ({"state": "lost"}, {"limit": "0"}, {"stat": "queued"}, {"cursor": "x"},
                    {"createdFrom": "2026-01-01T00:00:00"}):  # fmt: skip
        response = web.get("/api/jobs", params=filters)
        assert response.status_code == 422, filters
        assert response.json()["detail"]


def test_an_unknown_job_is_not_found_on_any_route(web: httpx.Client) -> None:
    place = f"/api/jobs/{uuid4()}"
    for path in ("", "/attempts", "/why", "/graph", "/events"):
        response = web.get(place + path)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), path
    assert web.get("/api/jobs/42").status_code == 422
    nowhere = web.get("/api/nothing")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "no_route")
    assert nowhere.headers["content-type"] == "application/problem+json"
    assert web.patch("/api/jobs").status_code == 405


def test_why_explains_a_held_job(web: httpx.Client) -> None:
    job = enqueue(web, "add", {"hold": True}, a=1)
    result = web.get(f"/api/jobs/{job['id']}/why").json()
    assert result["reasons"][0]["code"] == "held"
    assert result["state"] == "created"


def test_a_failed_job_shows_its_attempts_and_error(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        job = wait_for(web, enqueue(web, "broken", why="no film")["id"], "failed")
        assert job["lastError"]["message"] == "no film"
        assert "Traceback" in job["lastError"]["traceback"]
        assert job["failureDetails"]["advice"]
        assert job["failedAt"] == job["endedAt"]
        found = web.get(f"/api/jobs/{job['id']}/attempts").json()["attempts"]
    assert [(item["number"], item["outcome"]) for item in found] == [(1, "retry"), (2, "fail")]
    assert found[0]["error"]["type"] == "ValueError"


def test_a_dependent_job_shows_how_many_parents_it_waits_for(web: httpx.Client) -> None:
    parent = enqueue(web, "add", {"hold": True}, a=1)
    child = enqueue(web, "add", {"dependsOn": [parent["id"]]}, a=2)
    assert child["state"] == "created"
    assert child["waitingFor"] == 1


def test_a_job_that_waits_at_a_limit_shows_the_name_of_the_limit(
    server: LiveServer, web: httpx.Client
) -> None:
    limit = Limit(concurrency=1)
    server.app.limits.set("queue:narrow", limit)
    first, second = (enqueue(web, "add", {"queue": "narrow"}, a=n) for n in range(2))
    assert (first["state"], second["state"]) == ("queued", "created")
    assert (first["gate"], second["gate"]) == (None, "queue:narrow")
    result = web.get(f"/api/jobs/{second['id']}/why").json()
    assert result["reasons"][0]["code"] == "limited"
    batch = {"jobs": [{"task": "add", "arguments": {"a": 1}, "queue": "narrow", "limitKey": "k"}]}
    [response] = web.post("/api/jobs/batch", json=batch).json()["results"]
    assert (response["job"]["state"], response["job"]["limitKey"]) == ("created", "k")


def test_the_gate_of_a_limit_per_key_is_shown_without_the_key(
    server: LiveServer, web: httpx.Client
) -> None:
    server.app.limits.set("key:add", Limit(concurrency=1))
    _, waiting = (enqueue(web, "add", {"limitKey": "ann"}, a=n) for n in range(2))
    [listed] = web.get("/api/jobs", params={"state": "created", "limit": 1}).json()["jobs"]
    for job in (waiting, listed):
        assert (job["id"], job["gate"], job["limitKey"]) == (waiting["id"], "key:add", "ann")
