"""Search for text in jobs, and counts of matching jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import STREAM, LiveServer, enqueue, run_server, wait_for

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig


def found(web: httpx.Client, **filters: Any) -> list[str]:
    response = web.get("/api/jobs", params=filters)
    assert response.status_code == 200, response.text
    return [job["id"] for job in response.json()["jobs"]]


def count(web: httpx.Client, **filters: Any) -> dict[str, Any]:
    response = web.get("/api/jobs/count", params=filters)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def test_jobs_are_found_by_the_text_of_their_error(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        lost = enqueue(web, "broken", why="The Moon has set")["id"]
        other = enqueue(web, "broken", {"tags": ["moonlit"]}, why="no film")["id"]
        for job in (lost, other):
            wait_for(web, job, "failed")
        assert found(web, text="moon HAS") == [lost]
        assert found(web, text="moon") == [other, lost]
        assert found(web, text="valueerror", state="failed", limit=1) == [other]
        assert found(web, error="valueerror") == []
        assert count(web, text="moon") == {"count": 2, "capped": False}


def test_a_bulk_action_selects_jobs_by_text(server: LiveServer) -> None:
    with server.client() as web:
        jobs = [enqueue(web, "add", {"tags": [f"Order-{n}"]}, a=n)["id"] for n in range(3)]
        other = enqueue(web, "add", {"tags": ["ordinary"]}, a=1)["id"]
        assert count(web, text="order-", limit=1) == {"count": 3, "capped": False}
        body = {"action": "cancel", "filter": {"text": "ORDER-"}}
        assert web.post("/api/jobs/actions", json=body).json()["done"] == 3
        assert found(web, state="canceled", text="order-") == jobs[::-1]
        assert web.get(f"/api/jobs/{other}").json()["state"] == "queued"


def test_a_list_filtered_by_text_can_be_watched(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", {"tags": ["Watched"]}, a=1)["id"]
        enqueue(web, "add", a=1)
        params = {"text": "watched"}
        with web.stream("GET", "/api/events", headers=STREAM, params=params) as response:
            result = next(line for line in response.iter_lines() if line.startswith("data:"))
        assert job in result


@pytest.mark.parametrize("text", ["a\0", "x" * 600])
def test_an_invalid_search_text_is_rejected(server: LiveServer, text: str) -> None:
    with server.client() as web:
        for path in ("/api/jobs", "/api/jobs/count"):
            assert web.get(path, params={"text": text}).status_code == 422


def test_search_and_count_include_only_visible_jobs(tmp_path: Path) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.KEYS)) as server:
        keys = [server.key(Role.PRODUCER, owner=name) for name in ("ann", "bob")]
        with server.client(keys[0]) as ann, server.client(keys[1]) as bob:
            enqueue(ann, "add", {"tags": ["film"]}, a=1)
            for number in range(2):
                enqueue(bob, "add", {"tags": ["film"]}, a=number)
            assert count(ann, text="film") == {"count": 1, "capped": False}
            assert count(bob) == {"count": 2, "capped": False}
            assert len(found(ann, text="film")) == 1
            assert ann.get("/api/jobs/count", params={"owner": "bob"}).status_code == 422
