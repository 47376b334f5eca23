"""Nothing secret is logged, whatever happens and however much is logged."""

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
from tests.server.conftest import PATIENCE, STREAM, make_app, said

from windlass.core.versioned_record import Entry
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.sessions import COOKIE
from windlass.server.auth.task_tokens import SIGNING_KEY

# With all that any library says: 1 is below DEBUG.
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
        raise RuntimeError("the middleware has a fault")
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
            process.wait(PATIENCE)
    with log.open("ab") as out:
        out.write(said_later)


def prepared(place: Path) -> str:
    """A store with one key."""
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
    kept = [one["secret"] for one in json.loads(entry.value)]
    return [*kept, *(base64.b64decode(one).hex() for one in kept)]


def secret_part(key: str) -> str:
    return key.split("_", 2)[2]


def visit(url: str, key: str) -> dict[str, str]:
    """All that has to do with a secret, well and badly; the secrets that were used."""
    found = {"key": secret_part(key)}
    with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as web:
        signed_in = web.post("/api/session", json={"key": key})
        found["cookie"] = signed_in.cookies[COOKIE]
        web.headers["Sec-Fetch-Site"] = "same-origin"
        made = web.post("/api/keys", json={"name": "second", "roles": ["worker"]}).json()
        found["second key"] = secret_part(made["key"])
        job = {"task": "add", "arguments": {"a": 1}, "headers": {"x": "carried-secret"}}
        found["header of a job"] = "carried-secret"
        id_ = web.post("/api/jobs", json=job).json()["id"]
        found |= streams(web, id_) | work(web, made["key"]) | failures(web, url, key)
        assert web.delete("/api/session").status_code == 204
        assert web.get("/api/jobs", headers={"Cookie": f"{COOKIE}={found['cookie']}"}).is_error
    return found


def streams(web: httpx.Client, job: str) -> dict[str, str]:
    ticket = web.post("/api/tickets").json()["ticket"]
    web.post(f"/api/jobs/{job}/cancel")
    bare = {"Cookie": "", **STREAM}
    for expected in (200, 401):  # it is good once
        params = {"ticket": ticket}
        with web.stream("GET", f"/api/jobs/{job}/events", params=params, headers=bare) as answer:
            assert answer.status_code == expected
            if expected == 200:
                assert said(answer)
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
    with socket.create_connection((place.host, place.port), PATIENCE) as sock:
        sock.sendall(f"this is no HTTP {key}\r\n\r\n".encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    return {"guess": secret_part(guess), "payload of a crash": "unlucky-secret"}


def test_no_secret_is_in_any_log(tmp_path: Path) -> None:
    key = prepared(tmp_path)
    log = tmp_path / "server.log"
    with logging_server(tmp_path, log) as url:
        secrets = visit(url, key)
    secrets |= {f"signing secret {n}": one for n, one in enumerate(signing_secrets(tmp_path))}
    told = log.read_text()
    assert "DEBUG" in told  # it was told to say all
    assert "the middleware has a fault" in told  # and what went wrong is there
    assert {name for name, secret in secrets.items() if secret in told} == set()
    assert len(secrets) >= 11
