"""Shared streams: logs of many jobs, and snapshots of watched lists."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    WAIT_TIMEOUT,
    LiveServer,
    SseMessage,
    enqueue,
    messages,
    read_messages,
    run_server,
    until,
    wait_for,
)

from windlass.server.config import AuthMode, ServerConfig
from windlass.server.streaming.feeds import shared_job_feed
from windlass.server.streaming.stream_filter import StreamFilter


def follow(web: httpx.Client, after: str) -> list[SseMessage]:
    with web.stream("GET", "/api/events", headers=STREAM, params={"after": after}) as response:
        assert response.status_code == 200, response.read()
        return read_messages(response)


def test_a_shared_stream_has_the_complete_ordered_log_of_each_job(
    server_with_worker: LiveServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with server_with_worker.client() as web:
        ids = [enqueue(web, "film", gate=str(gate), lines=5)["id"] for _ in range(4)]
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(follow, web, ",".join(f"{item}:0" for item in ids))
            until(
                lambda: server_with_worker.context.hub.followed_jobs == 4, "all jobs are followed"
            )
            gate.touch()
            found = reading.result()
        lasts = {item: wait_for(web, item, "succeeded")["seq"] for item in ids}
    logs: dict[str, list[int]] = defaultdict(list)
    for item in found:
        assert item.id is None  # the client keeps a cursor for each job
        assert item.type == item.data["type"]
        logs[item.data["jobId"]].append(item.data["seq"])
    assert logs == {job_id: list(range(1, last + 1)) for job_id, last in lasts.items()}


def test_a_shared_stream_continues_each_job_after_its_cursor(server: LiveServer) -> None:
    with server.client() as web:
        first, second = (enqueue(web, "add", a=n)["id"] for n in range(2))
        for job in (first, second):
            web.post(f"/api/jobs/{job}/cancel")
        found = follow(web, f"{first}:2,{second}:0")
        assert sorted((said.data["jobId"] == second, said.data["seq"]) for said in found) == [
            (False, 3), (True, 1), (True, 2), (True, 3),
        ]  # fmt: skip
        ended = web.get("/api/events", params={"after": f"{first}:3,{second}:3"}, headers=STREAM)
        assert ended.status_code == 204


MISSING_JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.mark.parametrize(
    ("after", "status"),
    [("x:1", 422), (f"{MISSING_JOB}:x", 422), (f"{MISSING_JOB}:0", 404), ("", 422)],
)
def test_an_invalid_after_parameter_is_rejected(
    server: LiveServer, after: str, status: int
) -> None:
    with server.client() as web:
        response = web.get("/api/events", params={"after": after}, headers=STREAM)
        assert response.status_code == status
        many = ",".join(f"{uuid4()}:0" for _ in range(101))
        assert web.get("/api/events", params={"after": many}).status_code == 422


def test_a_watched_list_sends_snapshots_of_its_jobs(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.LOCAL, list_poll_interval=0.02)
    with run_server(tmp_path, config) as server, server.client() as web:
        old = enqueue(web, "add", {"queue": "media"}, a=1)["id"]
        enqueue(web, "add", a=1)  # not in the watched list
        state: dict[str, Any] = {}
        with web.stream(
            "GET", "/api/events", headers=STREAM, params={"queue": "media", "state": "queued"}
        ) as response:
            stream = messages(response)

            def expect_states(**expected: str) -> None:
                while state != expected:
                    message = next(stream)
                    assert isinstance(message, SseMessage)
                    assert message.type == "snapshot"
                    assert {"id", "seq", "percent"} <= message.data.keys() or not message.data[
                        "state"
                    ]
                    state[message.data["id"]] = message.data["state"]

            expect_states(**{old: "queued"})
            new = enqueue(web, "add", {"queue": "media"}, a=2)["id"]
            expect_states(**{old: "queued", new: "queued"})
            web.post(f"/api/jobs/{old}/cancel")  # it leaves the list with its new state
            expect_states(**{old: "canceled", new: "queued"})
        until(lambda: server.context.hub.open_streams == 0, "the stream is closed")
        assert not server.context.list_watches._watches


def test_an_invalid_list_filter_is_reported_by_field(server: LiveServer) -> None:
    with server.client() as web:
        assert web.get("/api/events", params={"state": "lost"}).status_code == 422
        for text in ("state=lost", "color=red", "limit=0", "nonsense", "createdFrom=now"):
            response = web.get("/api/events", params={"list": ["state=queued", text]})
            assert response.status_code == 422, text
            [error] = response.json()["errors"]
            assert error["field"].startswith("list") or error["field"] == "createdFrom"
        many = [f"limit={n + 1}" for n in range(21)]
        assert web.get("/api/events", params={"list": many}).status_code == 422


@contextmanager
def open_stream(web: httpx.Client, params: dict[str, Any]) -> Iterator[Iterator[SseMessage]]:
    with web.stream("GET", "/api/events", headers=STREAM, params=params) as response:
        assert response.status_code == 200, response.read()
        yield (message for message in messages(response) if isinstance(message, SseMessage))


def take_until(
    stream: Iterator[SseMessage], last: Callable[[SseMessage], bool]
) -> list[SseMessage]:
    found: list[SseMessage] = []
    while not found or not last(found[-1]):
        found.append(next(stream))
    return found


def test_a_shared_stream_combines_jobs_and_named_lists(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.LOCAL, list_poll_interval=0.02)
    media, same, empty = "queue=media&state=queued", "state=queued&queue=media", "tag=none"
    with run_server(tmp_path, config) as server, server.client() as web:
        job = enqueue(web, "add", {"queue": "media"}, a=1)["id"]
        params = {"after": f"{job}:0", "list": [media, same, empty]}
        with open_stream(web, params) as stream:
            loaded: set[str] = set()
            found: list[SseMessage] = []
            while len(loaded) < 3:
                found += take_until(stream, lambda item: item.type == "loaded")
                loaded.add(found[-1].data["list"])
            assert loaded == {media, same, empty}
            assert server.context.hub.open_streams == 1
            assert len(server.context.list_watches._watches) == 2  # two have the same filters
            listed = [item.data for item in found if item.type == "snapshot"]
            assert {item["list"] for item in listed} == {media, same}
            assert {(item["id"], item["state"], item["listed"]) for item in listed} == {
                (job, "queued", True)
            }
            web.post(f"/api/jobs/{job}/cancel")
            lists, log = set[str](), [item for item in found if item.type == "job-status"]
            while len(lists) < 2 or not log or log[-1].type != "job-cancelled":
                message = next(stream)
                if message.type == "snapshot":  # it leaves the list with its new state
                    assert (message.data["state"], message.data["listed"]) == ("canceled", False)
                    lists.add(message.data["list"])
                else:
                    log.append(message)
        assert [item.data["seq"] for item in log] == [1, 2, 3]
        until(lambda: server.context.hub.open_streams == 0, "the stream is closed")
        assert not server.context.list_watches._watches
        assert server.context.hub.followed_jobs == 0


def test_an_error_of_one_job_or_list_does_not_affect_the_others(server: LiveServer) -> None:
    with server.client() as web:
        ended, good, ahead = (enqueue(web, "add", {"queue": "each"}, a=n)["id"] for n in range(3))
        web.post(f"/api/jobs/{ended}/cancel")
        vector = f"{MISSING_JOB}:0,{ended}:3,x:1,{ahead}:99,{good}:0"
        params = {"after": vector, "list": ["queue=each", "state=lost"], "reportErrors": "true"}
        with open_stream(web, params) as stream:
            found = take_until(stream, lambda item: item.type == "loaded")
            web.post(f"/api/jobs/{good}/cancel")
            found += take_until(stream, lambda item: item.type == "job-cancelled")
        over = {
            item.data.get("jobId") or item.data["list"]: item.data["problem"]
            for item in found
            if item.type == "closed"
        }
        assert {name: result and result["status"] for name, result in over.items()} == {
            MISSING_JOB: 404, ended: None, "x": 422, ahead: 422, "state=lost": 422,
        }  # fmt: skip
        assert [item.data["seq"] for item in found if item.data.get("jobId") == good] == [1, 2, 3]
        assert {item.data["id"] for item in found if item.type == "snapshot"} >= {
            ended,
            good,
            ahead,
        }
        with open_stream(
            web, {"after": f"{MISSING_JOB}:0,{ended}:3", "reportErrors": "true"}
        ) as stream:
            assert [new.type for new in stream] == ["closed", "closed"]  # and the stream ends


def test_a_job_deleted_before_its_log_is_read_is_reported_as_closed(server: LiveServer) -> None:
    async def read() -> list[bytes]:
        return [
            item
            async for item in shared_job_feed(
                server.context.hub, uuid4(), StreamFilter(), report_errors=True
            )
        ]

    [result] = asyncio.run_coroutine_threadsafe(read(), server.loop).result(WAIT_TIMEOUT)
    assert result.startswith(b"event: closed\n")
    assert b'"status":404' in result
