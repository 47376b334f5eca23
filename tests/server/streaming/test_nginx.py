"""The server behind nginx with the configuration of Debian: streams need no settings."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
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
    run_server,
    until,
)

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(
    NGINX is None, reason="nginx not found; on Debian: apt-get install nginx-light"
)
NAME = "jobs.example.com"
CONFIG = ServerConfig(
    auth=AuthMode.KEYS,
    hosts=frozenset({NAME}),
    keepalive=0.2,
    max_body=5 * 1024 * 1024,
    key_cache_ttl=0.05,
)
# The first server has only proxy_pass; the second forwards the client address and host name.
NGINX_CONF = """
daemon off;
master_process off;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {place}/body;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    server {{
        listen 127.0.0.1:{plain};
        location / {{ proxy_pass {url}; }}
    }}
    server {{
        listen 127.0.0.1:{full};
        client_max_body_size 20m;
        location / {{
            proxy_pass {url};
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto https;
        }}
    }}
}}
"""


@dataclass(frozen=True)
class ProxiedServer:
    server: LiveServer
    plain: str
    full: str
    key: str

    def client(self, url: str | None = None, **headers: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        return httpx.Client(base_url=url or self.plain, headers=headers, timeout=WAIT_TIMEOUT)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def run_nginx(server: LiveServer, place: Path) -> Iterator[tuple[str, str]]:
    """Run nginx in front of a server; yield the URLs of the plain and the full configuration."""
    plain, full = free_port(), free_port()
    conf = place / "nginx.conf"
    conf.write_text(NGINX_CONF.format(place=place, plain=plain, full=full, url=server.url))
    assert NGINX is not None
    errors = place / "error.log"
    command = [NGINX, "-p", str(place), "-e", str(errors), "-c", str(conf)]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: accepts_connections(plain) and accepts_connections(full), "nginx answers")
            yield f"http://127.0.0.1:{plain}", f"http://127.0.0.1:{full}"
        finally:
            process.terminate()
            process.wait(WAIT_TIMEOUT)


@pytest.fixture(scope="module")
def proxied_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedServer]:
    with (
        run_server(tmp_path_factory.mktemp("behind"), CONFIG) as server,
        run_nginx(server, tmp_path_factory.mktemp("nginx")) as (plain, full),
    ):
        yield ProxiedServer(server, plain, full, server.key(Role.ADMIN))


def test_clients_behind_nginx_do_not_count_as_local(tmp_path: Path) -> None:
    with (
        run_server(tmp_path) as server,
        run_nginx(server, tmp_path) as places,
        httpx.Client(timeout=WAIT_TIMEOUT) as web,
    ):
        assert web.get(f"{server.url}/api/jobs").status_code == 200
        for place in places:
            assert web.get(f"{place}/api/jobs").status_code == 401
            assert web.get(f"{place}/healthz").status_code == 200


def events(response: httpx.Response) -> Iterator[SseMessage]:
    return (message for message in messages(response) if isinstance(message, SseMessage))


def test_nginx_does_not_buffer_events(proxied_server: ProxiedServer) -> None:
    with proxied_server.client() as web, proxied_server.server.client(proxied_server.key) as direct:
        job = enqueue(direct, "add", {"hold": True}, a=1)
        with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert "content-encoding" not in response.headers
            found = events(response)
            assert next(found).seq == 1  # before any other event
            direct.post(f"/api/jobs/{job['id']}/submit")
            assert next(found).data["status"] == "queued"
            direct.post(f"/api/jobs/{job['id']}/cancel")
            assert [item.type for item in found][-1] == "job-cancelled"  # and the stream ends


def test_nginx_passes_keepalives(proxied_server: ProxiedServer) -> None:
    with proxied_server.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)
        with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
            keepalives = (message for message in messages(response) if isinstance(message, str))
            assert all(next(keepalives).startswith("keepalive") for _ in range(3))


def test_a_client_resumes_a_stream_through_nginx(proxied_server: ProxiedServer) -> None:
    with proxied_server.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)
        place = f"/api/jobs/{job['id']}/events"
        with web.stream("GET", place, headers=STREAM) as response:
            first = next(events(response))
        web.post(f"/api/jobs/{job['id']}/cancel")
        assert first.id is not None
        with web.stream("GET", place, headers={**STREAM, "Last-Event-ID": first.id}) as response:
            rest = [event.seq for event in events(response)]
        assert [first.seq, *rest] == list(range(1, len(rest) + 2))
        last = web.get(place).json()["cursor"]
        reply_response = web.get(place, headers={**STREAM, "Last-Event-ID": last})
        assert reply_response.status_code == 204


def test_a_worker_long_polls_through_nginx(proxied_server: ProxiedServer) -> None:
    queue = str(uuid4())
    claim = {"worker": "far", "queues": {queue: 1}, "tasks": ["add"], "wait": 15}
    with proxied_server.client() as web, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(web.post, "/api/worker/claim", json=claim)
        with proxied_server.server.client(proxied_server.key) as direct:
            until(lambda: proxied_server.server.context.hub.long_polls, "the claim waits")
            job = enqueue(direct, "add", {"queue": queue}, a=1)
        [claimed] = waiting.result(WAIT_TIMEOUT).json()["jobs"]
        assert claimed["job"]["id"] == job["id"]


def test_the_host_check_works_through_nginx(proxied_server: ProxiedServer) -> None:
    for name, status in ((NAME, 200), ("evil.example", 421)):
        with proxied_server.client(proxied_server.full, Host=name) as web:
            assert web.get("/api/jobs").status_code == status
    with proxied_server.client(proxied_server.plain, Host="evil.example") as web:
        assert web.get("/api/jobs").status_code == 200  # nginx sends the address of the upstream


def test_a_session_cookie_is_secure_if_nginx_received_https(proxied_server: ProxiedServer) -> None:
    with proxied_server.client(proxied_server.full, Host=NAME) as web:
        cookie = SimpleCookie(web.post("/api/session").headers["set-cookie"])
        assert cookie["windlass_session"]["secure"]
    page = {"Host": NAME, "Origin": f"https://{NAME}", "Cookie": cookie.output([], "").strip()}
    with httpx.Client(base_url=proxied_server.full, headers=page, timeout=WAIT_TIMEOUT) as browser:
        assert browser.get("/api/session").json()["by"] == "session"
        assert browser.post("/api/tickets").status_code == 201


def test_a_body_that_is_too_large_gets_413_through_nginx(proxied_server: ProxiedServer) -> None:
    size = {"task": "add", "arguments": {"a": "x" * (2 * 1024 * 1024)}}
    with proxied_server.client() as web:
        assert web.post("/api/jobs", json=size).status_code == 413  # by nginx: client_max_body_size
    more = {"task": "add", "arguments": {"a": "x" * (6 * 1024 * 1024)}}
    with proxied_server.client(proxied_server.full, Host=NAME) as web:
        for _ in range(5):  # the body is drained: after a reset, nginx would return 502
            response = web.post("/api/jobs", json=more)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
        response = web.post("/api/jobs", json=more, headers={"Authorization": "Bearer x"})
        assert response.status_code == 401
        assert web.get("/api/jobs").status_code == 200


def test_requests_through_nginx_need_a_key(proxied_server: ProxiedServer) -> None:
    for url in (proxied_server.plain, proxied_server.full):
        response = httpx.get(f"{url}/api/jobs", headers={"Host": NAME}, timeout=WAIT_TIMEOUT)
        assert response.status_code == 401


def test_a_stream_ended_by_the_server_ends_through_nginx(proxied_server: ProxiedServer) -> None:
    revoked, key_id = proxied_server.server.key_and_id(Role.PRODUCER)
    with (
        proxied_server.client() as admin,
        proxied_server.client(Authorization=f"Bearer {revoked}") as web,
    ):
        job = enqueue(admin, "add", {"hold": True}, a=1)
        with web.stream("GET", f"/api/jobs/{job['id']}/events", headers=STREAM) as response:
            found = events(response)
            assert next(found).seq == 1
            admin.delete(f"/api/keys/{key_id}")
            assert list(found) == []
