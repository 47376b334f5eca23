"""Admission of streams: a few are opened at a time, and other requests are not delayed."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import LiveServer, enqueue, make_app, run_server, until
from tests.server.recording_store import RecordingStore

from windlass.server.streaming.stream_admission import MAX_OPENING
from windlass.stores.memory import MemoryStore

CLIENTS = 50


EMPTY_STREAM = b"HTTP/1.1 200 OK", b"d\r\nretry: 1000\n\n\r\n0\r\n\r\n"


@contextlib.contextmanager
def open_many_streams(server: LiveServer, job: str) -> Iterator[list[socket.socket]]:
    """Send many stream requests at once; yield their sockets before any response."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    params = [f"GET /api/jobs/{job}/events HTTP/1.1", "Host: localhost"]
    params += ["Accept: text/event-stream", "", ""]
    created = [socket.create_connection((host, int(port))) for _ in range(CLIENTS)]
    try:
        for item in created:
            item.sendall("\r\n".join(params).encode())
        yield created
    finally:
        for item in created:
            item.close()


def with_response(sockets: list[socket.socket]) -> list[socket.socket]:
    return select.select([item for item in sockets if item.fileno() >= 0], [], [], 0)[0]


def peek_response(sock: socket.socket) -> tuple[bytes, bytes]:
    """Return the status line and the body, without consuming them."""
    head, _, body = sock.recv(4096, socket.MSG_PEEK).partition(b"\r\n\r\n")
    return head.splitlines()[0], body


def test_streams_are_opened_a_few_at_a_time_and_do_not_block_other_requests(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), RecordingStore(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        run_server(tmp_path, app=app) as server,
        server.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.free.clear()
        with open_many_streams(server, job):
            until(
                lambda: len(server.uvicorn.server_state.connections) > CLIENTS, "all are connected"
            )
            until(lambda: store.running["get"], "the first are admitted")
            for _ in range(3):
                assert web.get("/api/jobs").json()["jobs"][0]["id"] == job
            assert store.running["get"] <= MAX_OPENING
            store.free.set()
            until(lambda: server.context.hub.open_streams == CLIENTS, "all are open")


def test_a_shutdown_answers_streams_that_wait_for_admission(tmp_path: Path) -> None:
    app, store = make_app(tmp_path), RecordingStore(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        run_server(tmp_path, app=app, grace=60) as server,
        server.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.calls.clear()
        store.free.clear()
        with open_many_streams(server, job) as sockets:
            until(
                lambda: len(server.uvicorn.server_state.tasks) == CLIENTS,
                "all requests have started",
            )
            until(lambda: store.running["get"] == MAX_OPENING, "the first are admitted")
            server.uvicorn.should_exit = True
            until(
                lambda: len(with_response(sockets)) == CLIENTS - MAX_OPENING,
                "the others have a response",
            )
            assert store.calls["get"] == MAX_OPENING, "the store is not read for them"
            assert all(peek_response(item) == EMPTY_STREAM for item in with_response(sockets))
            for item in with_response(sockets):
                item.close()
            store.free.set()  # the admitted streams can finish


def test_a_stream_disconnected_before_admission_reads_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app, store = make_app(tmp_path), RecordingStore(MemoryStore())
    with (
        app.replace_store(store, tmp_path / "data"),
        run_server(tmp_path, app=app) as server,
        server.client() as web,
    ):
        job = enqueue(web, "add", a=1)["id"]
        store.calls.clear()
        store.free.clear()
        with open_many_streams(server, job):
            until(
                lambda: len(server.uvicorn.server_state.tasks) == CLIENTS,
                "all requests have started",
            )
            until(lambda: store.running["get"] == MAX_OPENING, "the first are admitted")
        until(lambda: len(server.uvicorn.server_state.connections) <= 1, "all are disconnected")
        store.free.set()
        with server.client() as other:
            read = {"Accept": "text/event-stream"}
            with other.stream("GET", f"/api/jobs/{job}/events", headers=read) as response:
                assert response.status_code == 200
        assert store.calls["get"] == MAX_OPENING + 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
