"""`windlass check` with a server that is down, dies during the check, or is behind a proxy."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import pytest
from tests.server.conftest import LiveServer, run_server

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig

_RESET = struct.pack("ii", 1, 0)
UNAVAILABLE = 3


def response(status: str, kind: str, body: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", body]).encode()


def problem(status: str, code: str, detail: str, advice: str, *headers: str) -> bytes:
    body = json.dumps({"code": code, "detail": detail, "advice": advice})
    return response(status, "application/problem+json", body, *headers)


@contextmanager
def answering(data: bytes, *, reset: bool = False) -> Iterator[str]:
    """A server that sends this response and closes the connection."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                one, _ = listener.accept()
                one.recv(65536)
                if reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.sendall(data)
                one.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


HALF = response("200 OK", "application/json", "x" * 99)[:-50]
PAGE = "text/html", "<html>"
BUSY = problem(
    "429 Too Many Requests", "rate_limited", "the key x asks too often", "wait", "Retry-After: 60"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "closed the connection before it responded"),
        (HALF, "closed the connection before it responded"),
        (HALF[:20], "closed the connection before it responded"),
        (BUSY, "the key x asks too often (HTTP 429); wait"),
        (response("429 Too Many Requests", *PAGE, "Retry-After: 60"), "limits the rate (HTTP 429)"),
        (response("502 Bad Gateway", *PAGE), "a proxy in front of it returned HTTP 502"),
        (response("504 Gateway Timeout", *PAGE), "a proxy in front of it returned HTTP 504"),
        (response("200 OK", *PAGE), "HTTP 200, text/html: this is not a Windlass server"),
        (
            problem("503 Service Unavailable", "stopping", "no time left", "ask again"),
            "no time left (HTTP 503); ask again",
        ),
    ],
)
def test_other_servers_are_reported_with_advice(run_cli: Any, data: bytes, message: str) -> None:
    with answering(data) as url:
        found = run_cli("check", "--url", url)
    assert found.code == UNAVAILABLE
    [line] = [line for line in found.out.splitlines() if "✗" in line]
    assert message in line
    assert url in line


def test_a_server_that_dies_is_reported_as_lost_not_as_unreachable(run_cli: Any) -> None:
    with answering(b"", reset=True) as url:
        found = run_cli("check", "--json", "--url", url)
    assert found.code == UNAVAILABLE
    [wrong] = [one["message"] for one in found.json["findings"] if one["verdict"] == "error"]
    assert "closed the connection before it responded" in wrong
    assert "cannot be reached" not in wrong


def test_an_unreachable_server_is_reported(run_cli: Any) -> None:
    found = run_cli("check", "--url", "http://127.0.0.1:1")
    assert found.code == UNAVAILABLE
    assert "cannot be reached: " in found.out
    assert "check that it is running, and its host and port" in found.out


@pytest.fixture
def slow(tmp_path: Any) -> Iterator[LiveServer]:
    """A server that allows two requests at once, and then one per minute."""
    config = ServerConfig(auth=AuthMode.KEYS, rate=1 / 60, burst=2)
    with run_server(tmp_path, config) as one:
        yield one


def test_a_rate_limited_key_is_reported_by_a_real_server(
    run_cli: Any, slow: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_KEY", slow.key(Role.VIEWER))
    first, second = (run_cli("check", "--url", slow.url) for _ in range(2))
    assert first.code == 0, first.out
    assert second.code == UNAVAILABLE
    assert "exceeds its request rate" in second.out
    assert "Retry-After" in second.out
