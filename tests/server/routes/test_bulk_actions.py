"""Bulk actions: one action on all jobs that match a filter."""

from __future__ import annotations

from pathlib import Path

import httpx
from tests.server.conftest import LiveServer, enqueue, run_server, wait_for

from windlass.core.ids import uuid7
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig


def states(web: httpx.Client, queue: str) -> list[str]:
    response = web.get("/api/jobs", params={"queue": queue})
    return [job["state"] for job in response.json()["jobs"]]


def test_a_bulk_cancel_affects_only_matching_jobs(server: LiveServer) -> None:
    with server.client() as web:
        for number in range(7):
            enqueue(web, "add", {"queue": "many"}, a=number)
        enqueue(web, "add", {"queue": "few"}, a=1)
        body = {"action": "cancel", "filter": {"queue": ["many"]}, "reason": "moved"}
        result = web.post("/api/jobs/actions", json=body).json()
        assert result == {"matched": 7, "done": 7, "refused": [], "cursor": None}
        assert states(web, "many") == ["canceled"] * 7
        assert states(web, "few") == ["queued"]
        job = web.get("/api/jobs", params={"queue": "many", "limit": 1}).json()["jobs"][0]
        assert web.get(f"/api/jobs/{job['id']}").json()["cancelReason"] == "moved"


def test_a_job_whose_state_forbids_the_action_is_reported_as_refused(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", {"queue": "mixed"}, a=1)
        enqueue(web, "add", {"queue": "mixed", "hold": True}, a=2)
        body = {"action": "submit", "filter": {"queue": ["mixed"]}}
        result = web.post("/api/jobs/actions", json=body).json()
        assert (result["matched"], result["done"]) == (2, 1)
        assert [(item["id"], item["code"]) for item in result["refused"]] == [
            (job["id"], "conflict")
        ]


def test_a_bulk_action_continues_with_the_cursor(server: LiveServer) -> None:
    with server.client() as web:
        for number in range(5):
            enqueue(web, "add", {"queue": "long"}, a=number)
        body = {"action": "cancel", "filter": {"queue": ["long"], "limit": 2}}
        done, cursor = 0, None
        while True:
            result = web.post("/api/jobs/actions", json=body | {"cursor": cursor}).json()
            done += result["done"]
            cursor = result["cursor"]
            if cursor is None:
                break
        assert done == 5
        for verb, status in (("retry", ["queued"] * 5 + ["canceled"] * 5),):
            web.post("/api/jobs/actions", json={"action": verb, "filter": {"queue": ["long"]}})
            assert sorted(states(web, "long"), reverse=True) == sorted(status, reverse=True)


def test_a_bulk_delete_deletes_finished_jobs(server: LiveServer) -> None:
    with server.client() as web:
        enqueue(web, "add", {"queue": "old"}, a=1)
        enqueue(web, "add", {"queue": "old"}, a=2)
        job = web.get("/api/jobs", params={"queue": "old"}).json()["jobs"][0]["id"]
        web.post(f"/api/jobs/{job}/cancel")
        body = {"action": "delete", "filter": {"queue": ["old"], "state": ["canceled"]}}
        assert web.post("/api/jobs/actions", json=body).json()["done"] == 1
        assert states(web, "old") == ["queued"]


def test_an_invalid_bulk_action_is_rejected(server: LiveServer) -> None:
    with server.client() as web:
        for body in (
            {"action": "delete", "filter": {}},
            {"action": "delete", "filter": {"limit": 5}},
            {"action": "delete", "filter": {"queue": []}},
            {"action": "delete", "filter": {"id": []}},
            {"action": "delete", "filter": {"id": [], "queue": ["x"]}},
            {"action": "delete", "filter": {"id": [str(uuid7()) for _ in range(201)]}},
            {"action": "delete", "filter": {"quue": ["x"]}},
            {"action": "burn", "filter": {"queue": ["x"]}},
            {"action": "delete"},
        ):
            assert web.post("/api/jobs/actions", json=body).status_code == 422, body


def test_a_bulk_action_by_id_affects_only_the_named_jobs(server: LiveServer) -> None:
    with server.client() as web:
        queue = {"queue": "named"}
        jobs = [enqueue(web, "add", queue, a=number)["id"] for number in range(5)]
        gone = str(uuid7())
        body = {"action": "cancel", "filter": {"id": [*jobs[:3], jobs[0], gone], "limit": 1}}
        result = web.post("/api/jobs/actions", json=body).json()
        assert result == {"matched": 3, "done": 3, "refused": [], "cursor": None}
        assert states(web, "named") == ["queued"] * 2 + ["canceled"] * 3  # newest first
        result = web.post("/api/jobs/actions", json=body | {"action": "submit"}).json()
        assert (result["matched"], result["done"]) == (3, 0)
        assert {item["id"] for item in result["refused"]} == set(jobs[:3])
        narrowed = {"id": jobs, "state": ["queued"], "queue": ["named"]}
        result = web.post("/api/jobs/actions", json={"action": "cancel", "filter": narrowed}).json()
        assert (result["matched"], result["done"]) == (2, 2)


def test_a_bulk_action_needs_permission_and_affects_only_visible_jobs(
    tmp_path: Path,
) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.KEYS)) as server:
        keys = [server.key(Role.PRODUCER, owner=name) for name in ("a", "b")]
        with server.client(keys[0]) as client_a, server.client(keys[1]) as client_b:
            enqueue(client_a, "add", a=1)
            enqueue(client_b, "add", a=1)
            body = {"action": "cancel", "filter": {"queue": ["default"]}}
            assert client_a.post("/api/jobs/actions", json=body).json()["matched"] == 1
            assert states(client_a, "default") == ["canceled"]
            assert states(client_b, "default") == ["queued"]
            delete = {"action": "delete", "filter": {"queue": ["default"]}}
            assert client_a.post("/api/jobs/actions", json=delete).status_code == 403
            foreign = {"action": "cancel", "filter": {"owner": "b"}}
            assert client_a.post("/api/jobs/actions", json=foreign).status_code == 422
            foreign_job = client_b.get("/api/jobs").json()["jobs"][0]["id"]
            named = {"action": "cancel", "filter": {"id": [foreign_job]}}
            assert client_a.post("/api/jobs/actions", json=named).json()["matched"] == 0
            assert states(client_b, "default") == ["queued"]


def test_a_bulk_retry_skips_jobs_that_were_already_retried(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        job = enqueue(web, "broken", {"owner": "once"}, why="x")["id"]
        wait_for(web, job, "failed")
        params = {"action": "retry", "filter": {"owner": "once", "state": ["failed"]}}
        assert web.post("/api/jobs/actions", json=params).json()["done"] == 1
        retry_id = web.get(f"/api/jobs/{job}").json()["retriedAs"]
        wait_for(web, retry_id, "failed")
        result = web.post("/api/jobs/actions", json=params).json()
        assert (result["matched"], result["done"]) == (2, 1)
        assert [item["id"] for item in result["refused"]] == [job]
