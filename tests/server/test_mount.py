"""The server inside another application, and its lazy imports."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from tests.server.conftest import STREAM, WAIT_TIMEOUT, enqueue, make_app, read_messages, until

from windlass import Windlass
from windlass.server.config import AuthMode, ServerConfig

OPEN = ServerConfig(auth=AuthMode.OPEN)


@contextmanager
def run_uvicorn(api: FastAPI) -> Iterator[httpx.Client]:
    """Run the application in a plain uvicorn server."""
    server = uvicorn.Server(uvicorn.Config(api, port=0, log_config=None))
    thread = Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server listens")
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=WAIT_TIMEOUT, verify=False
        ) as web:
            yield web
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Windlass]:
    created = make_app(tmp_path)
    yield created
    created.close()


def host_app() -> FastAPI:
    api = FastAPI()

    @api.get("/mine")
    async def host_route() -> dict[str, str]:
        return {"status": "ok"}

    return api


def check(web: httpx.Client, prefix: str) -> None:
    assert web.get("/mine").json() == {"status": "ok"}
    reply_response = web.post(f"{prefix}/api/jobs", json={"task": "add", "arguments": {"a": 1}})
    assert reply_response.status_code == 201
    job = web.get(reply_response.headers["location"]).json()
    assert web.post(f"{prefix}/api/jobs/{job['id']}/cancel").json()["status"] == "canceled"
    with web.stream("GET", f"{prefix}/api/jobs/{job['id']}/events", headers=STREAM) as response:
        assert [message.seq for message in read_messages(response)] == [1, 2, 3]
    wrong = web.post(f"{prefix}/api/jobs", json={"task": "add", "arguments": {}})
    assert wrong.status_code == 422
    assert wrong.headers["content-type"] == "application/problem+json"
    assert web.get(f"{prefix}/api/jobs/x").status_code == 422


def test_the_app_can_be_mounted_in_another_application(app: Windlass) -> None:
    api = host_app()
    api.mount("/windlass", app.asgi(OPEN))
    with run_uvicorn(api) as web:
        check(web, "/windlass")
        assert web.get("/windlass/nothing").json()["code"] == "no_route"


def test_the_router_can_be_included_in_another_application(app: Windlass) -> None:
    api = host_app()
    api.include_router(app.router(OPEN))
    with run_uvicorn(api) as web:
        check(web, "")
        assert web.get("/nothing").json() == {
            "detail": "Not Found"
        }  # other paths keep their error format
        document = web.get("/openapi.json").json()
        assert {"/mine", "/api/jobs"} <= document["paths"].keys()


def test_two_apps_in_one_process_keep_their_jobs_apart(app: Windlass, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_app(tmp_path / "other")
    api = host_app()
    api.include_router(app.router(OPEN), prefix="/one")
    api.include_router(other.router(OPEN), prefix="/two")
    with run_uvicorn(api) as web:
        web.post("/one/api/jobs", json={"task": "add", "arguments": {"a": 1}})
        assert len(web.get("/one/api/jobs").json()["jobs"]) == 1
        assert web.get("/two/api/jobs").json()["jobs"] == []
    other.close()


def test_keys_are_required_by_default(app: Windlass) -> None:
    api = host_app()
    api.include_router(app.router())
    api.mount("/windlass", app.asgi())
    with run_uvicorn(api) as web:
        assert web.get("/api/jobs").status_code == 401
        assert web.get("/windlass/api/jobs").status_code == 401


def test_a_job_rejected_by_middleware_is_not_enqueued(app: Windlass) -> None:
    @app.middleware
    def guard(new_job: Any) -> Any:
        if b"13" in new_job.payload:
            raise ValueError("unlucky")
        return new_job

    with run_uvicorn(app.asgi(OPEN)) as web:
        enqueue(web, "add", a=1)
        response = web.post("/api/jobs", json={"task": "add", "arguments": {"a": 13}})
        assert (response.status_code, response.json()["code"]) == (500, "internal")
        assert "unlucky" not in response.text  # the message of the exception stays private
        assert len(web.get("/api/jobs").json()["jobs"]) == 1


def test_without_fastapi_the_error_names_the_package_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["fastapi"] = None
from windlass import Windlass
app = Windlass("memory:")
try:
    app.asgi()
except Exception as error:
    print(type(error).__name__, error)
app.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "ConfigurationError the server needs FastAPI: pip install 'windlass[server]'"
    )


def test_the_command_line_does_not_import_web_packages(tmp_path: Path) -> None:
    code = """
import json, sys
import windlass.cli
print(json.dumps([name for name in ("fastapi", "starlette", "uvicorn") if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


MOUNTED = """
import sys, uvicorn
from fastapi import FastAPI
from windlass import Windlass
from windlass.server.config import AuthMode, ServerConfig

app = Windlass(sys.argv[1])

@app.task(name="add")
def add(a: int) -> int:
    return a

api = FastAPI()
api.mount("/jobs", app.asgi(ServerConfig(auth=AuthMode.OPEN)))
uvicorn.run(api, port=int(sys.argv[2]), log_level="warning")
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_an_embedding_server_stops_with_open_streams(
    tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    arguments = [sys.executable, "-c", MOUNTED, f"sqlite:///{tmp_path}/jobs.db", str(port)]
    with subprocess.Popen(arguments) as process:
        try:
            base = f"http://127.0.0.1:{port}/jobs"
            with httpx.Client(base_url=base, timeout=WAIT_TIMEOUT, verify=False) as web:
                until(lambda: answers(web), "the server listens")
                job = enqueue(web, "add", {"hold": True}, a=1)
                path = f"/api/jobs/{job['id']}/events"
                with web.stream("GET", path, headers=STREAM) as response:
                    lines = response.iter_lines()
                    assert any(
                        line.startswith("data:") for line in lines
                    )  # the first event arrives
                    process.send_signal(number)
                    assert not any(line.startswith("data:") for line in lines)  # the stream ends
            process.wait(WAIT_TIMEOUT)
        finally:
            process.kill()


def answers(web: httpx.Client) -> bool:
    try:
        return web.get("/healthz").is_success
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port
