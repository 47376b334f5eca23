"""Jobs over HTTP: enqueue, find, look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import Served, enqueue, wait_for

from windlass.core.admission.limit import Limit
from windlass.core.ids import uuid7


@pytest.fixture
def web(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_a_new_job_is_stored_and_told(web: httpx.Client) -> None:
    answer = web.post("/api/jobs", json={"task": "add", "arguments": {"a": 1}, "tags": ["x"]})
    assert answer.status_code == 201
    job = answer.json()
    assert job["state"] == "queued"
    assert job["arguments"] == {"a": 1}
    assert job["createdAt"] == job["queuedAt"]
    assert job["createdAt"].endswith("Z")
    assert not job["duplicate"]
    assert answer.headers["location"] == f"/api/jobs/{job['id']}"
    again = web.get(answer.headers["location"])
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


def test_a_repeat_with_ones_own_id_is_answered_as_the_first(web: httpx.Client) -> None:
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
def test_a_wrong_value_is_named_with_its_reason(
    web: httpx.Client, body: dict[str, object], field: str, words: str
) -> None:
    answer = web.post("/api/jobs", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["errors"][0]["field"] == field
    assert words in told["errors"][0]["message"]
    assert words in told["detail"]
    assert told["type"] == "urn:windlass:problem:invalid_argument"
    assert told["advice"]
    assert told["instance"] == "/api/jobs"


def test_what_is_no_json_is_refused_in_plain_words(web: httpx.Client) -> None:
    post = "/api/jobs"
    answer = web.post(post, content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")
    assert web.get("/api/jobs/").status_code == 404  # it leads nowhere else
    empty = {"Idempotency-Key": ""}
    assert web.post(post, json={"task": "add"}, headers=empty).status_code == 422
    assert web.post(post, content=b"a=1", headers={"Content-Type": "text/plain"}).status_code == 415
    nan = b'{"task": "add", "arguments": {"a": NaN}}'
    answer = web.post(post, content=nan, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    deep = b'{"task": "add", "arguments": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    answer = web.post(post, content=deep, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "nested" in answer.json()["detail"]


def test_a_request_has_an_end(web: httpx.Client) -> None:
    big = {"task": "add", "arguments": {"a": "x" * (17 * 1024 * 1024)}}
    answer = web.post("/api/jobs", json=big)
    assert answer.status_code == 413
    chunks = (b"x" * 1024 * 1024 for _ in range(17))  # without saying how long it will be
    headers = {"Content-Type": "application/json"}
    assert web.post("/api/jobs", content=chunks, headers=headers).status_code == 413
    payload = {"task": "film", "arguments": {"gate": "x" * (2 * 1024 * 1024)}}
    answer = web.post("/api/jobs", json=payload)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_batch_answers_for_each_job_and_one_bad_job_fails_alone(web: httpx.Client) -> None:
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
    answer = web.post("/api/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 200
    found = answer.json()["results"]
    assert [one["status"] for one in found] == [
        "created", "refused", "duplicate", "conflict", "refused", "refused", "created",
    ]  # fmt: skip
    assert found[0]["job"]["id"] == found[2]["job"]["id"]
    assert found[1]["problem"]["errors"][0]["field"] == "task"
    assert len(web.get("/api/jobs").json()["jobs"]) == before + 2


def test_a_batch_under_one_idempotency_key_can_be_repeated(web: httpx.Client) -> None:
    jobs = {"jobs": [{"task": "add", "arguments": {"a": n}} for n in range(3)]}
    first = web.post("/api/jobs/batch", json=jobs, headers={"Idempotency-Key": "b"}).json()
    again = web.post("/api/jobs/batch", json=jobs, headers={"Idempotency-Key": "b"}).json()
    ids = [[one["job"]["id"] for one in answer["results"]] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert {one["status"] for one in again["results"]} == {"duplicate"}


def test_a_batch_that_is_too_long_is_refused_whole(web: httpx.Client) -> None:
    jobs = [{"task": "add", "arguments": {"a": 1}, "queue": "long"}] * 1001
    answer = web.post("/api/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 422
    assert "1,000" in answer.json()["detail"]
    assert web.get("/api/jobs", params={"queue": "long"}).json()["jobs"] == []


def test_a_list_is_filtered(web: httpx.Client) -> None:
    one = enqueue(web, "add", {"queue": "media", "tags": ["l", "b"], "owner": "o"}, a=1)
    two = enqueue(web, "add", {"hold": True, "tags": ["l"], "team": "t"}, a=2)

    def ids(**filters: Any) -> list[str]:
        answer = web.get("/api/jobs", params={"tag": "l", **filters})
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    assert ids() == [two["id"], one["id"]]
    assert ids(state="created") == [two["id"]]
    assert ids(state=["created", "queued"]) == [two["id"], one["id"]]
    assert ids(queue="media") == ids(tag=["l", "b"]) == ids(owner="o") == [one["id"]]
    assert ids(team="t") == ids(createdFrom=two["createdAt"]) == [two["id"]]
    assert ids(createdTo=two["createdAt"]) == [one["id"]]
    assert ids(task="film") == []


def test_pages_are_stable_while_jobs_come(web: httpx.Client) -> None:
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


def test_a_wrong_filter_is_named(web: httpx.Client) -> None:
    for filters in ({"state": "lost"}, {"limit": "0"}, {"stat": "queued"}, {"cursor": "x"},
                    {"createdFrom": "2026-01-01T00:00:00"}):  # fmt: skip
        answer = web.get("/api/jobs", params=filters)
        assert answer.status_code == 422, filters
        assert answer.json()["detail"]


def test_an_unknown_job_is_not_found_wherever_it_is_named(web: httpx.Client) -> None:
    place = f"/api/jobs/{uuid4()}"
    for path in ("", "/attempts", "/why", "/graph", "/events"):
        answer = web.get(place + path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert web.get("/api/jobs/42").status_code == 422
    nowhere = web.get("/api/nothing")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "no_route")
    assert nowhere.headers["content-type"] == "application/problem+json"
    assert web.patch("/api/jobs").status_code == 405


def test_why_says_what_keeps_a_job_from_running(web: httpx.Client) -> None:
    job = enqueue(web, "add", {"hold": True}, a=1)
    told = web.get(f"/api/jobs/{job['id']}/why").json()
    assert told["reasons"][0]["code"] == "held"
    assert told["state"] == "created"


def test_a_job_that_failed_tells_each_attempt_and_the_error(working: Served) -> None:
    with working.client() as web:
        job = wait_for(web, enqueue(web, "broken", why="no film")["id"], "failed")
        assert job["lastError"]["message"] == "no film"
        assert "Traceback" in job["lastError"]["traceback"]
        assert job["failureDetails"]["advice"]
        assert job["failedAt"] == job["endedAt"]
        found = web.get(f"/api/jobs/{job['id']}/attempts").json()["attempts"]
    assert [(one["number"], one["outcome"]) for one in found] == [(1, "retry"), (2, "fail")]
    assert found[0]["error"]["type"] == "ValueError"


def test_a_job_that_waits_for_another_says_so(web: httpx.Client) -> None:
    parent = enqueue(web, "add", {"hold": True}, a=1)
    child = enqueue(web, "add", {"dependsOn": [parent["id"]]}, a=2)
    assert child["state"] == "created"
    assert child["waitingFor"] == 1


def test_a_job_that_a_limit_keeps_out_of_line_says_so(served: Served, web: httpx.Client) -> None:
    limit = Limit(concurrency=1)
    served.app.limits.set("queue:narrow", limit)
    first, second = (enqueue(web, "add", {"queue": "narrow"}, a=n) for n in range(2))
    assert (first["state"], second["state"]) == ("queued", "created")
    assert "narrow" in second["gate"]
    told = web.get(f"/api/jobs/{second['id']}/why").json()
    assert told["reasons"][0]["code"] == "limited"
    batch = {"jobs": [{"task": "add", "arguments": {"a": 1}, "queue": "narrow", "limitKey": "k"}]}
    [answer] = web.post("/api/jobs/batch", json=batch).json()["results"]
    assert (answer["job"]["state"], answer["job"]["limitKey"]) == ("created", "k")
