"""Limits of requests: size, nesting, number of items, and time."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.conftest import STREAM, WAIT_TIMEOUT, LiveServer, enqueue, make_app, run_server
from tests.server.test_mount import host_app, run_uvicorn

from windlass.server.config import AuthMode, ServerConfig
from windlass.server.uvicorn_server import MAX_HEAD

JSON = {"Content-Type": "application/json"}
SMALL_LIMITS = ServerConfig(auth=AuthMode.OPEN, max_body=100_000, max_json_depth=10, max_batch=20)
SHORT_TIMEOUTS = ServerConfig(auth=AuthMode.LOCAL, read_timeout=0.3, keepalive=0.2)


@pytest.fixture(scope="module")
def limited_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with run_server(tmp_path_factory.mktemp("small"), SMALL_LIMITS) as live_server:
        yield live_server


@pytest.fixture(scope="module")
def short_timeout_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with run_server(tmp_path_factory.mktemp("hasty"), SHORT_TIMEOUTS) as live_server:
        yield live_server
        with live_server.client() as client:
            assert client.get("/healthz").status_code == 200


@pytest.fixture
def web(limited_server: LiveServer) -> Iterator[httpx.Client]:
    """A client; after each test, the server still enqueues jobs."""
    with limited_server.client() as client:
        yield client
        assert enqueue(client, "add", a=1)["state"] == "queued"


@contextmanager
def connect(limited_server: LiveServer) -> Iterator[socket.socket]:
    place = httpx.URL(limited_server.url)
    with closing(socket.create_connection((place.host, place.port), WAIT_TIMEOUT)) as sock:
        yield sock


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def read_all(sock: socket.socket) -> bytes:
    """Read until the server closes or resets the connection."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/batch", "/api/schedules", "/api/keys",
                                  "/api/worker/claim", "/api/jobs/actions"])  # fmt: skip
def test_a_body_that_is_too_large_is_rejected_on_every_route(web: httpx.Client, path: str) -> None:
    body = json.dumps({"task": "x" * 200_000}).encode()
    assert problem(web.post(path, content=body, headers=JSON)) == (413, "too_large")
    pieces = (b"[" * 10_000 for _ in range(20))  # chunked, without Content-Length
    assert problem(web.post(path, content=pieces, headers=JSON)) == (413, "too_large")


@pytest.mark.parametrize(("header", "status"), [("X: y", 413), ("Authorization: Bearer z", 401)])
def test_the_rest_of_a_rejected_body_is_drained_before_the_response(
    limited_server: LiveServer, web: httpx.Client, header: str, status: int
) -> None:
    """nginx uses HTTP/1.0: a close before the whole body is received resets the connection."""
    size = 16 * 1024 * 1024
    with connect(limited_server) as sock:
        sock.sendall(
            f"POST /api/jobs HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"{header}\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        for _ in range(16):
            sock.sendall(b" " * (size // 16))
        assert read_all(sock).startswith(f"HTTP/1.1 {status}".encode())


def test_a_content_length_that_is_too_large_is_rejected_at_once(
    limited_server: LiveServer, web: httpx.Client
) -> None:
    with connect(limited_server) as sock:
        sock.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        assert sock.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(("opening", "closing_"), [("[", "]"), ('{"a":', "}")])
def test_json_that_is_nested_too_deeply_is_rejected(
    web: httpx.Client, opening: str, closing_: str
) -> None:
    for depth in (11, 15_000):
        deep = opening * depth + "1" + closing_ * depth
        body = f'{{"task": "add", "arguments": {{"a": {deep}}}}}'
        assert problem(web.post("/api/jobs", content=body, headers=JSON)) == (400, "bad_request")


BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("/api/jobs/batch", {"jobs": [{}] * 21}),
    ("/api/worker/claim", {"worker": "w", "queues": {"q": 21}, "tasks": ["add"]}),
    ("/api/worker/extend", {"tasks": [{}] * 21}),
    ("/api/worker/settle", {"tasks": [{"outcome": "released"}] * 21}),
    ("/api/worker/record", {"tasks": [{"records": [{"n": 1, "type": "log"}]}] * 21}),
    ("/api/jobs/actions", {"action": "cancel", "filter": {"tag": [str(n) for n in range(101)]}}),
    ("/api/jobs/actions", {"action": "cancel", "filter": {"queue": ["q"], "limit": 100_000}}),
]


@pytest.mark.parametrize(("path", "body"), BATCHES)
def test_a_batch_that_is_too_long_is_rejected(
    web: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    assert problem(web.post(path, json=body)) == (422, "invalid_argument")


def test_a_filter_with_too_many_values_is_rejected(web: httpx.Client) -> None:
    names: list[tuple[str, Any]] = [("queue", f"q{n}") for n in range(101)]
    assert problem(web.get("/api/jobs", params=names)) == (422, "invalid_argument")
    jobs = ",".join(f"01890a5d-ac96-774b-bcce-b3020{n:07d}:0" for n in range(101))
    response = web.get("/api/events", params={"after": jobs}, headers=STREAM)
    assert problem(response) == (422, "invalid_argument")


def test_repeated_filter_values_are_allowed(web: httpx.Client) -> None:
    twice = {"state": ["queued", "queued"], "queue": ["q", "q"]}
    assert web.get("/api/jobs", params=twice).status_code == 200
    key = {"name": "k", "roles": ["viewer", "viewer"], "expiresIn": "-"}
    assert problem(web.post("/api/keys", json=key)) == (422, "invalid_argument")
    same = {"task": ["t"] * 101}
    assert problem(web.get("/api/jobs", params=same)) == (422, "invalid_argument")


def test_thousands_of_parameters_cause_one_error(web: httpx.Client) -> None:
    names = "&".join(f"x{n}" for n in range(5000))
    assert problem(web.get(f"/api/jobs?{names}")) == (400, "bad_request")
    assert problem(web.get("/api/jobs?x&y")) == (422, "invalid_argument")


@pytest.mark.parametrize("where", ["path", "query", "header", "headers", "line"])
def test_a_request_head_that_is_too_large_is_rejected(
    limited_server: LiveServer, web: httpx.Client, where: str
) -> None:
    size = b"x" * (2 * MAX_HEAD)
    head = {
        "path": b"GET /" + size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "query": b"GET /api/jobs?" + size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + size + b"\r\n\r\n",
        "headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * MAX_HEAD + b"\r\n",
        "line": size,
    }[where]
    with connect(limited_server) as sock:
        try:
            sock.sendall(head)
        except (BrokenPipeError, ConnectionResetError):
            return  # the server closed the connection during the send
        response = read_all(sock)
        assert response.startswith(b"HTTP/1.1 400") or response == b""


@pytest.mark.parametrize("partial_head", [b"", b"GET /api/jobs HTTP/1.1\r\nHost: loc"])
def test_a_connection_without_a_request_head_times_out(
    short_timeout_server: LiveServer, partial_head: bytes
) -> None:
    with connect(short_timeout_server) as sock:
        sock.sendall(partial_head)
        assert read_all(sock) == b""


def test_an_incomplete_second_request_head_times_out(short_timeout_server: LiveServer) -> None:
    with connect(short_timeout_server) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        sock.sendall(b"GET /api/jobs HT")
        assert b"HTTP" not in read_all(sock)


def trickle(sock: socket.socket) -> bytes:
    """Send single bytes until the server disconnects; return its response."""
    sock.settimeout(0.02)
    found = b""
    for _ in range(round(WAIT_TIMEOUT / 0.02)):
        try:
            sock.sendall(b" ")
            piece = sock.recv(65536)
            if not piece:
                return found
            found += piece
        except TimeoutError:
            continue
        except (BrokenPipeError, ConnectionResetError):
            return found
    raise AssertionError("the server never closed the connection")


def test_a_body_sent_too_slowly_times_out(short_timeout_server: LiveServer) -> None:
    with connect(short_timeout_server) as sock:
        sock.sendall(
            b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 90000\r\n\r\n"
        )
        response = trickle(sock)
        assert response.startswith(b"HTTP/1.1 408")
        assert b'"code":"request_timeout"' in response


def test_a_client_that_keeps_sending_after_the_response_is_disconnected(
    short_timeout_server: LiveServer,
) -> None:
    """The path does not exist: the 404 response does not wait for the body."""
    with connect(short_timeout_server) as sock:
        sock.sendall(
            b"POST /api/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\n"
        )
        assert trickle(sock).startswith(b"HTTP/1.1 404")


def test_a_stream_outlasts_the_read_timeout(short_timeout_server: LiveServer) -> None:
    """Several keepalives arrive after `read_timeout`."""
    with short_timeout_server.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)
        with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
            keepalives = (line for line in response.iter_lines() if line.startswith(": keepalive"))
            for _ in range(4):
                next(keepalives)


def test_idle_connections_do_not_block_other_clients(short_timeout_server: LiveServer) -> None:
    place = httpx.URL(short_timeout_server.url)
    with ExitStack() as stack, short_timeout_server.client() as web:
        idle_connections = [
            stack.enter_context(socket.create_connection((place.host, place.port), WAIT_TIMEOUT))
            for _ in range(200)
        ]
        assert web.get("/healthz").status_code == 200
        assert all(read_all(sock) == b"" for sock in idle_connections)


def test_websocket_upgrades_are_ignored(web: httpx.Client) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    assert web.get("/healthz", headers=upgrade).status_code == 200


def test_a_mounted_server_has_the_same_limits(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    api = host_app()
    api.mount("/windlass", app.asgi(ServerConfig(auth=AuthMode.OPEN, max_body=1000)))
    with run_uvicorn(api) as web:
        response = web.post("/windlass/api/jobs", json={"task": "x" * 2000})
        assert problem(response) == (413, "too_large")
    app.close()
