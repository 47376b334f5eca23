"""`windlass serve` and `windlass keys`, as commands."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

Ask = Callable[..., Any]
Call = Callable[..., subprocess.CompletedProcess[str]]
PATIENCE = 60.0


@contextmanager
def serving(place: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "serve", *words],
        cwd=place,
        env=os.environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.stderr.read()
        yield found[0], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stderr.close()


def test_it_serves_an_app_moves_time_along_and_stops_in_order(place: Path) -> None:
    with serving(place, "tasks:app", "--port", "0") as (url, process):
        # Workers elsewhere may be all there are: the server makes a job due for them.
        body = {"task": "tasks.add", "arguments": {"a": 1}, "delay": 0.2}
        made = httpx.post(f"{url}/api/jobs", json=body, verify=False, timeout=PATIENCE)
        assert made.json()["state"] == "created"
        ask = {"worker": "w", "queues": {"default": 1}, "tasks": ["tasks.add"], "wait": 20}
        found = httpx.post(f"{url}/api/worker/claim", json=ask, verify=False, timeout=PATIENCE)
        assert len(found.json()["jobs"]) == 1

        body = {"task": "tasks.add", "arguments": {"a": 1}}
        job = httpx.post(f"{url}/api/jobs", json=body, verify=False, timeout=PATIENCE)
        assert job.status_code == 201
        stream = httpx.Client(base_url=url, verify=False, timeout=PATIENCE)
        events = f"/api/jobs/{job.json()['id']}/events"
        with stream, stream.stream("GET", events, headers={"Accept": "text/event-stream"}) as read:
            lines = read.iter_lines()
            while not (line := next(lines)).startswith("id:") or not line.endswith("-2"):
                pass
            process.send_signal(signal.SIGTERM)
            rest = list(lines)  # the response comes to its end, and is not cut
        assert not [line for line in rest if line.startswith("id:")]
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Stopped" in process.stderr.read()


def test_signing_keys_can_be_rotated(ask: Ask) -> None:
    assert ask("migrate").code == 0

    done = ask("keys", "rotate")

    assert done.code == 0, done.err
    assert "Signing key rotated" in done.err


@pytest.mark.slow
def test_without_an_app_it_serves_what_is_stored(place: Path, put: Callable[..., str]) -> None:
    job = put("add", a=1, b=2)
    with serving(place, "--port", "0") as (url, _):
        shown = httpx.get(f"{url}/api/jobs/{job}", verify=False, timeout=PATIENCE)
        assert shown.json()["result"] == 3


def test_a_public_address_is_refused_without_keys(ask: Ask) -> None:
    done = ask("serve", "tasks:app", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "windlass keys create" in done.err


def test_a_public_address_requires_a_key(place: Path, ask: Ask) -> None:
    made = ask("keys", "create", "me", "--role", "viewer", "--json").json
    with serving(place, "tasks:app", "--host", "0.0.0.0", "--port", "0") as (everywhere, _):
        url = everywhere.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url, verify=False, timeout=PATIENCE) as web:
            assert web.get("/api/jobs").status_code == 401
            key = {"Authorization": f"Bearer {made['key']}"}
            assert web.get("/api/jobs", headers=key).status_code == 200


@pytest.mark.slow
def test_a_public_address_may_be_opened_on_purpose(place: Path) -> None:
    words = ("tasks:app", "--host", "0.0.0.0", "--port", "0", "--without-keys")
    with serving(place, *words) as (everywhere, _):
        url = everywhere.replace("0.0.0.0", "127.0.0.1")
        shown = httpx.get(f"{url}/api/jobs", verify=False, timeout=PATIENCE)
        assert shown.status_code == 200


@pytest.mark.slow
def test_a_port_in_use_is_an_error(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = call("serve", "tasks:app", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen on" in done.stderr


def test_keys_are_made_listed_and_revoked(place: Path, ask: Ask) -> None:
    made = ask("keys", "create", "ci", "-r", "producer", "-r", "viewer", "--owner", "o")
    assert made.code == 0
    token = made.out.strip()
    assert re.fullmatch(r"wl_[0-9a-f]{12}_[\w-]{43}", token)
    key_id = token.split("_")[1]
    [listed] = ask("keys", "list", "--json").json
    assert (listed["id"], listed["state"], listed["owner"]) == (key_id, "valid", "o")
    assert listed["roles"] == ["producer", "viewer"]
    shown = ask("keys", "list")
    assert "owner o" in shown.out
    assert token.split("_", 2)[2] not in shown.out
    assert ask("keys", "revoke", key_id).code == 0
    assert ask("keys", "revoke", key_id).code == 0
    assert ask("keys", "list", "--json").json[0]["state"] == "revoked"
    assert ask("keys", "revoke", "000000000000").code == 1


def test_a_key_needs_a_role_that_there_is(place: Path, ask: Ask) -> None:
    assert ask("keys", "create", "x").code == 2
    assert ask("keys", "create", "x", "--role", "king").code == 2
    assert not Path("windlass.db").exists()


def test_host_and_port_may_be_settings(ask: Ask) -> None:
    Path("windlass.toml").write_text('host = "0.0.0.0"\nport = 0\n')
    done = ask("serve", "tasks:app")
    assert (done.code, "0.0.0.0 is a public address" in done.err) == (2, True)
    done = ask("serve", "tasks:app", WINDLASS_PORT="70000")
    assert (done.code, "between 0 and 65535" in done.err) == (2, True)
