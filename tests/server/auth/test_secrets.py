"""Secrets are never logged, even at the most verbose level."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.server.conftest import STREAM, WAIT_TIMEOUT, make_app, read_messages

from windlass.core.versioned_record import Entry
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.sessions import COOKIE
from windlass.server.auth.token_signer import SIGNING_KEY

# Logs everything: level 1 is below DEBUG.
SERVER = """
import asyncio, logging, sys
from pathlib import Path
from tests.server.conftest import make_app
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.uvicorn_server import UvicornServer

logging.basicConfig(level=1, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
app = make_app(Path(sys.argv[1]))


@app.middleware
def guard(new_job):
    if b"unlucky" in new_job.payload:
        raise RuntimeError("the middleware failed")
    return new_job


async def main():
    api = app.asgi(ServerConfig(auth=AuthMode.KEYS))
    await UvicornServer(api, "127.0.0.1", 0, on_started=lambda url: print(url, flush=True)).serve()
    await app.aclose()


asyncio.run(main())
"""


@contextmanager
def logging_server(place: Path, log: Path) -> Iterator[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(place)],
            stdout=subprocess.PIPE,
            stderr=out,
            env=env,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            yield url
        finally:
            process.terminate()
            said_later = process.stdout.read()
            process.wait(WAIT_TIMEOUT)
    with log.open("ab") as out:
        out.write(said_later)


def prepared(place: Path) -> str:
    """Create a store with one key; return the key."""
    app = make_app(place)

    async def make() -> str:
        return (await ApiKeys(app.client().store).create("first", [Role.ADMIN]))[1]

    key = app.sync.call(make())
    app.close()
    return key


def signing_secrets(place: Path) -> list[str]:
    app = make_app(place)

    async def look() -> list[Entry]:
        return list(await app.client().store.list_records(SIGNING_KEY))

    [entry] = app.sync.call(look())
    app.close()
    kept = [load["secret"] for load in json.loads(entry.value)]
    return [*kept, *(base64.b64decode(item).hex() for item in kept)]


def secret_part(key: str) -> str:
    return key.split("_", 2)[2]


def visit(url: str, key: str) -> dict[str, str]:
    """Make valid and invalid requests with secrets; return all secrets used."""
    found = {"key": secret_part(key)}
    with httpx.Client(base_url=url, timeout=WAIT_TIMEOUT, verify=False) as web:
        signed_in = web.post("/api/session", json={"key": key})
        found["cookie"] = signed_in.cookies[COOKIE]
        web.headers["Sec-Fetch-Site"] = "same-origin"
        created = web.post("/api/keys", json={"name": "second", "roles": ["worker"]}).json()
        found["second key"] = secret_part(created["key"])
        job = {"task": "add", "arguments": {"a": 1}, "headers": {"x": "carried-secret"}}
        found["header of a job"] = "carried-secret"
        id_ = web.post("/api/jobs", json=job).json()["id"]
        found |= streams(web, id_) | work(web, created["key"]) | failures(web, url, key)
        assert web.delete("/api/session").status_code == 204
        assert web.get("/api/jobs", headers={"Cookie": f"{COOKIE}={found['cookie']}"}).is_error
    return found


def streams(web: httpx.Client, job: str) -> dict[str, str]:
    ticket = web.post("/api/tickets").json()["ticket"]
    web.post(f"/api/jobs/{job}/cancel")
    bare = {"Cookie": "", **STREAM}
    for expected in (200, 401):  # a ticket is valid once
        params = {"ticket": ticket}
        with web.stream("GET", f"/api/jobs/{job}/events", params=params, headers=bare) as response:
            assert response.status_code == expected
            if expected == 200:
                assert read_messages(response)
    return {"ticket": ticket}


def work(web: httpx.Client, key: str) -> dict[str, str]:
    web.post("/api/jobs", json={"task": "broken", "arguments": {"why": "payload-secret"}})
    worker = {"Authorization": f"Bearer {key}"}
    claim = {"worker": "w", "queues": {"default": 5}, "tasks": ["broken"]}
    [job] = web.post("/api/worker/claim", json=claim, headers=worker).json()["jobs"]
    token = job["taskToken"]
    by_token = {"Authorization": f"Bearer {token}"}
    good = web.post("/api/worker/extend", json={"tasks": [{}]}, headers=by_token)
    assert good.json()["results"][0]["status"] == "applied"
    wrong = {"Authorization": f"Bearer {token[:-2]}xx"}
    assert web.post("/api/worker/extend", json={"tasks": [{}]}, headers=wrong).status_code == 401
    assert web.get("/api/jobs", headers=by_token).status_code == 401
    settled: dict[str, Any] = {"outcome": "succeeded", "result": {"is": "result-secret"}}
    web.post("/api/worker/settle", json={"tasks": [settled]}, headers=by_token)
    return {"task token": token, "payload": "payload-secret", "result": "result-secret"}


def failures(web: httpx.Client, url: str, key: str) -> dict[str, str]:
    guess = "wl_" + key.split("_")[1] + "_" + "Guess" * 8 + "123"
    assert web.get("/api/jobs", headers={"Authorization": f"Bearer {guess}"}).status_code == 401
    assert web.post("/api/session", json={"key": guess}).status_code == 401
    assert web.get("/api/jobs", params={"key": key}).status_code == 422
    assert web.get(f"/nothing?key={key}").status_code == 404
    body = {"task": "broken", "arguments": {"why": "unlucky-secret"}}
    assert web.post("/api/jobs", json=body).status_code == 500
    place = httpx.URL(url)
    with socket.create_connection((place.host, place.port), WAIT_TIMEOUT) as sock:
        sock.sendall(f"this is no HTTP {key}\r\n\r\n".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    return {"guess": secret_part(guess), "payload of a crash": "unlucky-secret"}


def test_no_secret_is_logged(tmp_path: Path) -> None:
    key = prepared(tmp_path)
    log = tmp_path / "server.log"
    with logging_server(tmp_path, log) as url:
        secrets = visit(url, key)
    secrets |= {f"signing secret {n}": one for n, one in enumerate(signing_secrets(tmp_path))}
    result = log.read_text()
    assert "DEBUG" in result  # the most verbose level is on
    assert "the middleware failed" in result  # errors are logged
    assert {name for name, secret in secrets.items() if secret in result} == set()
    assert len(secrets) >= 11
