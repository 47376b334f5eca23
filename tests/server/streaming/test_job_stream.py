"""The event stream of one job: replay, live events, resume, and end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.server.conftest import (
    STREAM,
    WAIT_TIMEOUT,
    LiveServer,
    SseMessage,
    enqueue,
    make_app,
    messages,
    read_messages,
    run_server,
    until,
    wait_for,
)

from windlass.core.codec import Purpose
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.schemas.events import REQUIRED_KEYS
from windlass.server.config import AuthMode, ServerConfig
from windlass.store import AttemptRecords, Retention
from windlass.stores.memory import MemoryStore
from windlass.testing.wrapped_store import WrappedStore


def events_of(job: dict[str, Any]) -> str:
    return f"/api/jobs/{job['id']}/events"


def read(web: httpx.Client, job: dict[str, Any], headers: dict[str, str] | None = None,
         **params: Any) -> list[SseMessage]:  # fmt: skip
    with web.stream(
        "GET", events_of(job), headers=STREAM | (headers or {}), params=params
    ) as response:
        assert response.status_code == 200, response.read()
        return read_messages(response)


@pytest.fixture
def done(
    server_with_worker: LiveServer, tmp_path: Path
) -> Iterator[tuple[httpx.Client, dict[str, Any]]]:
    """A client, and a succeeded job with several log events."""
    gate = tmp_path / "gate"
    gate.touch()
    with server_with_worker.client() as web:
        job = enqueue(web, "film", gate=str(gate))
        yield web, wait_for(web, job["id"], "succeeded")


def test_the_stream_of_a_finished_job_replays_all_events_and_ends(
    done: tuple[httpx.Client, dict[str, Any]],
) -> None:
    web, job = done
    with web.stream("GET", events_of(job), headers=STREAM) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no"
        assert "no-transform" in response.headers["cache-control"]
        assert "content-encoding" not in response.headers
        found = read_messages(response)
    assert [event.seq for event in found] == list(range(1, job["seq"] + 1))
    stamps = [int((event.id or "").partition("-")[0]) for event in found]
    assert stamps == sorted(stamps)
    last = found[-1]
    assert last.type == "job-completed"
    assert last.data["output"] == {"file": "film.mp4"}
    assert [artifact["name"] for artifact in last.data["artifacts"]] == ["film"]
    assert last.data["logs"] == ["line 0", "line 1", "line 2"]
    for event in found:
        assert event.data["correlationId"] == job["correlationId"]
        for keys in (keys for kind, keys in REQUIRED_KEYS.items() if kind.value == event.type):
            assert set(keys) <= event.data.keys(), event.type


def test_stream_and_pages_return_the_same_events(
    done: tuple[httpx.Client, dict[str, Any]],
) -> None:
    web, job = done
    pages: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 2}
    while True:
        page = web.get(events_of(job), params=params).json()
        pages += page["events"]
        if page["ended"]:
            break
        params["lastEventId"] = page["cursor"]
    assert [(event["id"], event["type"], event["data"]) for event in pages] == [
        (event.id, event.type, event.data) for event in read(web, job)
    ]


def test_a_reconnecting_client_continues_after_its_last_event(
    done: tuple[httpx.Client, dict[str, Any]],
) -> None:
    web, job = done
    log = read(web, job)
    cursor_event = log[4]
    assert cursor_event.id is not None
    assert read(web, job, {"Last-Event-ID": cursor_event.id}) == log[5:]
    assert read(web, job, lastEventId=cursor_event.id) == log[5:]
    # A browser that reconnects has the first cursor in its URL and the last one in the header.
    assert read(web, job, {"Last-Event-ID": cursor_event.id}, lastEventId=log[0].id) == log[5:]
    assert read(web, job, fromSequence=3) == log[2:]
    timestamp = (cursor_event.id or "").partition("-")[0]
    assert read(web, job, fromTimestamp=timestamp) == [
        event for event in log if int((event.id or "").partition("-")[0]) >= int(timestamp)
    ]
    logs = read(web, job, types="log,artifact")
    assert [log.type for log in logs] == ["log"] * 3 + ["artifact", "job-completed"]


def test_a_cursor_at_the_end_returns_no_content(
    done: tuple[httpx.Client, dict[str, Any]],
) -> None:
    web, job = done
    final = read(web, job)[-1].id or ""
    response = web.get(events_of(job), headers=STREAM | {"Last-Event-ID": final})
    assert response.status_code == 204


@pytest.mark.parametrize(
    "params",
    [{"lastEventId": "x"}, {"lastEventId": "5-99"}, {"types": "unknown"}, {"fromTimestamp": "now"},
     {"fromSequence": "0"}, {"since": "1"}],
    ids=str,
)  # fmt: skip
def test_an_invalid_cursor_is_rejected(server: LiveServer, params: dict[str, str]) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        response = web.get(events_of(job), headers=STREAM, params=params)
        assert response.status_code == 422
        assert response.headers["content-type"] == "application/problem+json"


def test_between_replay_and_live_events_none_is_lost_or_repeated(
    server_with_worker: LiveServer, tmp_path: Path
) -> None:
    """Ten clients connect at different times while the job logs events."""
    gate = tmp_path / "gate"
    with server_with_worker.client() as web:
        job = enqueue(web, "film", gate=str(gate), lines=150)

        def follow(number: int) -> list[int]:
            until(
                lambda: web.get(f"/api/jobs/{job['id']}").json()["seq"] > 12 * number,
                "the job logs",
            )
            with server_with_worker.client() as client:
                return [event.seq for event in read(client, job)]

        with ThreadPoolExecutor(10) as pool:
            found = [pool.submit(follow, number) for number in range(10)]
            until(lambda: server_with_worker.context.hub.open_streams == 10, "all streams are open")
            until(
                lambda: server_with_worker.context.hub.followed_jobs == 1,
                "they share one reader",
            )
            gate.touch()
            transcripts = [future.result() for future in found]
        last = wait_for(web, job["id"], "succeeded")["seq"]
    assert last > 150
    for transcript in transcripts:
        assert transcript == list(range(1, last + 1))


def test_a_slow_client_continues_from_the_store(tmp_path: Path) -> None:
    """The buffer has room for one event, so every burst overflows; no event is lost."""
    config = ServerConfig(auth=AuthMode.LOCAL, stream_buffer=1)
    gate = tmp_path / "gate"
    gate.touch()
    with run_server(tmp_path, config, worker=True) as server, server.client() as web:
        job = enqueue(web, "film", {"hold": True}, gate=str(gate), lines=100)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read, web, job)
            until(lambda: server.context.hub.followed_jobs, "the stream follows the job")
            web.post(f"/api/jobs/{job['id']}/submit")
            found = reading.result()
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    assert found[-1].type == "job-completed"


def test_a_stream_without_events_sends_keepalives(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.LOCAL, keepalive=0.05)
    with run_server(tmp_path, config) as server, server.client() as web:
        job = enqueue(web, "add", a=1)
        with web.stream("GET", events_of(job), headers=STREAM) as response:
            comments = (message for message in messages(response) if isinstance(message, str))
            keepalives = [next(comments) for _ in range(3)]
    for keepalive in keepalives:
        name, _, timestamp = keepalive.partition(": ")
        assert name == "keepalive"
        assert time.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_keepalive_interval_is_ten_seconds() -> None:
    assert ServerConfig().keepalive == 10


def test_a_cursor_older_than_the_log_gets_a_resync(
    done: tuple[httpx.Client, dict[str, Any]], server_with_worker: LiveServer
) -> None:
    web, job = done
    log = read(web, job)

    async def prune() -> int:
        retention = Retention(log=0.000001)
        return (await server_with_worker.app.client().store.prune(retention, 100)).logs

    until(lambda: server_with_worker.app.sync.call(prune()), "the log is pruned")
    found = read(web, job, {"Last-Event-ID": log[1].id or ""})
    assert [event.type for event in found] == ["resync", "job-completed"]
    result = found[0].data
    assert (result["state"], result["percent"], result["jobId"]) == ("succeeded", 100, job["id"])
    assert result["endedAt"] == job["endedAt"]
    assert found[1].id == log[-1].id


def test_text_of_an_event_cannot_start_another_sse_field(
    server_with_worker: LiveServer, tmp_path: Path
) -> None:
    text = "x\r\n\r\nevent: job-completed\ndata: {}\n\n\u2028\u0085y"
    with server_with_worker.client() as web:
        job = wait_for(web, enqueue(web, "broken", why=text)["id"], "failed")
        found = read(web, job)
        assert [event.seq for event in found] == list(range(1, job["seq"] + 1))
        assert found[-1].type == "job-failed"
        assert found[-1].data["errorMessage"] == text


def test_a_disconnected_client_is_removed_from_the_hub(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        with web.stream("GET", events_of(job), headers=STREAM) as response:
            reading = messages(response)
            next(reading)
            until(lambda: server.context.hub.followed_jobs == 1, "the job is followed")
        until(
            lambda: server.context.hub.open_streams == 0 == server.context.hub.followed_jobs,
            "the stream is closed",
        )


def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    config = ServerConfig(auth=AuthMode.LOCAL, write_timeout=2)
    with run_server(tmp_path, config) as server, server.client() as web:
        job = enqueue(web, "film", gate="x")
        record_long_lines(server, UUID(job["id"]))
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = server.url.removeprefix("http://").partition(":")
        stalled.connect((host, int(port)))
        lines = [f"GET {events_of(job)} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
        stalled.sendall("\r\n".join([*lines, "", ""]).encode())
        stalled.settimeout(WAIT_TIMEOUT)
        assert stalled.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"  # the response stays unread
        other = enqueue(web, "add", a=1)  # its stream works meanwhile
        web.post(f"/api/jobs/{other['id']}/cancel")
        assert [event.seq for event in read(web, other)] == [1, 2, 3]
        until(lambda: server.context.hub.open_streams == 0, "the stream is closed")
        until(
            lambda: not server.uvicorn.server_state.connections - _idle(server),
            "the connection is closed",
        )
        until(lambda: not _established(stalled), "the client socket is disconnected")
        stalled.close()


def _established(sock: socket.socket) -> bool:
    """Return whether the connection is established, without reading (Linux only)."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1


def _idle(server: LiveServer) -> set[Any]:
    """Return the connections without a request in progress."""
    return {
        connection
        for connection in server.uvicorn.server_state.connections
        if getattr(connection, "cycle", None) is None or connection.cycle.response_complete  # type: ignore[union-attr]
    }


def record_long_lines(server: LiveServer, job_id: UUID) -> None:
    """Record 200 long log lines, like the worker of the job."""

    async def record() -> None:
        store = server.app.client().store
        [row] = await store.claim(Claim(worker="w", token=uuid7(), queues=[("default", 1)]))
        assert row.id == job_id
        body = server.app.codec.encode({"message": "x" * 60_000}, Purpose.EVENT)
        for start in range(1, 200, 20):
            lines = [Record(n=start + n, type=EventType.LOG, body=body) for n in range(20)]
            await store.record([AttemptRecords(row.lease, lines)])

    server.app.sync.call(record())


def test_a_shutdown_ends_streams_between_messages_and_clients_resume_at_another_server(
    tmp_path: Path,
) -> None:
    with run_server(tmp_path) as first, run_server(tmp_path) as second:
        with first.client() as web:
            job = enqueue(web, "add", a=1)
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(read, web, job)
                until(lambda: first.context.hub.followed_jobs, "the job is followed")
                first.stop()
                seen = reading.result()  # no error: the response is complete
        assert [event.seq for event in seen] == [1, 2]
        with second.client() as web:
            web.post(f"/api/jobs/{job['id']}/cancel")
            rest = read(web, job, {"Last-Event-ID": seen[-1].id or ""})
        assert [event.type for event in rest] == ["job-cancelled"]


class BlockedStore(WrappedStore):
    """A store whose `get` never returns."""

    def wrap(self, store: Any) -> BlockedStore:
        return BlockedStore(store)

    async def around(self, verb: str, call: Any) -> Any:
        if verb == "get":
            await asyncio.get_running_loop().create_future()
        return await call()


def test_a_request_that_outlasts_the_shutdown_gets_503_with_retry_after(tmp_path: Path) -> None:
    """The status is not 500, so that a client of a stream retries."""
    app = make_app(tmp_path)
    with (
        app.replace_store(BlockedStore(MemoryStore()), tmp_path / "data"),
        run_server(tmp_path, app=app, grace=1) as server,
        server.client() as web,
        ThreadPoolExecutor(1) as pool,
    ):
        pending = pool.submit(web.get, f"/api/jobs/{uuid7()}/events", headers=STREAM)
        until(lambda: server.uvicorn.server_state.tasks, "the request has started")
        server.stop()
        response = pending.result()
    assert (response.status_code, response.json()["code"]) == (503, "stopping")
    assert response.headers["Retry-After"]


def test_events_of_another_process_arrive(tmp_path: Path) -> None:
    """Both servers share only the database file."""
    with run_server(tmp_path) as reader, run_server(tmp_path) as actor:
        with actor.client() as web:
            job = enqueue(web, "add", a=1)
        with reader.client() as web, ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read, web, job)
            until(lambda: reader.context.hub.followed_jobs, "the job is followed")
            with actor.client() as other:
                other.post(f"/api/jobs/{job['id']}/cancel")
            assert reading.result()[-1].type == "job-cancelled"


def test_a_hundred_quiet_streams_share_one_reader(server: LiveServer) -> None:
    """A hundred quiet streams cause one read of the log, and other requests are answered."""
    with server.client() as web:
        job = enqueue(web, "add", a=1)

    async def open_streams() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=server.url, limits=limits, verify=False, timeout=WAIT_TIMEOUT
        ) as web:

            async def listen() -> int:
                async with web.stream("GET", events_of(job), headers=STREAM) as response:
                    return len([line async for line in response.aiter_lines() if line[:3] == "id:"])

            listening = [asyncio.create_task(listen()) for _ in range(100)]
            hub = server.context.hub
            await asyncio.to_thread(until, lambda: hub.open_streams == 100, "all streams are open")
            await asyncio.to_thread(until, lambda: hub.followed_jobs == 1, "they share one reader")
            await web.post(f"/api/jobs/{job['id']}/cancel")
            assert set(await asyncio.gather(*listening)) == {3}

    asyncio.run(open_streams())
