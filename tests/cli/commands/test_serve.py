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

RunCli = Callable[..., Any]
RunProcess = Callable[..., subprocess.CompletedProcess[str]]
WAIT_TIMEOUT = 60.0


@contextmanager
def serving(project_dir: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "serve", *words],
        cwd=project_dir,
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


def test_serve_serves_an_app_promotes_due_jobs_and_stops_in_order(project_dir: Path) -> None:
    with serving(project_dir, "tasks:app", "--port", "0") as (url, process):
        # All workers may be remote: the server promotes due jobs for them.
        body = {"task": "tasks.add", "arguments": {"a": 1}, "delay": 0.2}
        made = httpx.post(f"{url}/api/jobs", json=body, verify=False, timeout=WAIT_TIMEOUT)
        assert made.json()["state"] == "created"
        claim = {"worker": "w", "queues": {"default": 1}, "tasks": ["tasks.add"], "wait": 20}
        found = httpx.post(
            f"{url}/api/worker/claim", json=claim, verify=False, timeout=WAIT_TIMEOUT
        )
        assert len(found.json()["jobs"]) == 1

        body = {"task": "tasks.add", "arguments": {"a": 1}}
        job = httpx.post(f"{url}/api/jobs", json=body, verify=False, timeout=WAIT_TIMEOUT)
        assert job.status_code == 201
        stream = httpx.Client(base_url=url, verify=False, timeout=WAIT_TIMEOUT)
        events = f"/api/jobs/{job.json()['id']}/events"
        with stream, stream.stream("GET", events, headers={"Accept": "text/event-stream"}) as read:
            lines = read.iter_lines()
            while not (line := next(lines)).startswith("id:") or not line.endswith("-2"):
                pass
            process.send_signal(signal.SIGTERM)
            rest = list(lines)  # the response ends regularly and is not cut
        assert not [line for line in rest if line.startswith("id:")]
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert "Stopped" in process.stderr.read()


def test_signing_keys_can_be_rotated(run_cli: RunCli) -> None:
    assert run_cli("migrate").code == 0

    done = run_cli("keys", "rotate")

    assert done.code == 0, done.err
    assert "Signing key rotated" in done.err


@pytest.mark.slow
def test_without_an_app_serve_shows_stored_jobs(
    project_dir: Path, enqueue_job: Callable[..., str]
) -> None:
    job = enqueue_job("add", a=1, b=2)
    with serving(project_dir, "--port", "0") as (url, _):
        shown = httpx.get(f"{url}/api/jobs/{job}", verify=False, timeout=WAIT_TIMEOUT)
        assert shown.json()["result"] == 3


def test_a_public_address_is_refused_without_keys(run_cli: RunCli) -> None:
    done = run_cli("serve", "tasks:app", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "windlass keys create" in done.err


def test_a_public_address_requires_a_key(project_dir: Path, run_cli: RunCli) -> None:
    made = run_cli("keys", "create", "me", "--role", "viewer", "--json").json
    with serving(project_dir, "tasks:app", "--host", "0.0.0.0", "--port", "0") as (everywhere, _):
        url = everywhere.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=url, verify=False, timeout=WAIT_TIMEOUT) as web:
            assert web.get("/api/jobs").status_code == 401
            key = {"Authorization": f"Bearer {made['key']}"}
            assert web.get("/api/jobs", headers=key).status_code == 200


@pytest.mark.slow
def test_a_public_address_may_be_served_without_keys(project_dir: Path) -> None:
    words = ("tasks:app", "--host", "0.0.0.0", "--port", "0", "--no-auth")
    with serving(project_dir, *words) as (everywhere, _):
        url = everywhere.replace("0.0.0.0", "127.0.0.1")
        shown = httpx.get(f"{url}/api/jobs", verify=False, timeout=WAIT_TIMEOUT)
        assert shown.status_code == 200


@pytest.mark.slow
def test_a_port_in_use_is_an_error(run_process: RunProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_process("serve", "tasks:app", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen on" in done.stderr


def test_keys_are_created_listed_and_revoked(project_dir: Path, run_cli: RunCli) -> None:
    made = run_cli("keys", "create", "ci", "-r", "producer", "-r", "viewer", "--owner", "o")
    assert made.code == 0
    assert "in sqlite:///" in made.err, "otherwise a key for the wrong store goes unnoticed"
    token = made.out.strip()
    assert re.fullmatch(r"wl_[0-9a-f]{12}_[\w-]{43}", token)
    key_id = token.split("_")[1]
    [listed] = run_cli("keys", "list", "--json").json["keys"]
    assert (listed["id"], listed["state"], listed["owner"]) == (key_id, "valid", "o")
    assert listed["roles"] == ["producer", "viewer"]
    shown = run_cli("keys", "list")
    assert "owner o" in shown.out
    assert token.split("_", 2)[2] not in shown.out
    assert run_cli("keys", "revoke", key_id).code == 0
    assert run_cli("keys", "revoke", key_id).code == 0
    assert run_cli("keys", "list", "--json").json["keys"][0]["state"] == "revoked"
    assert run_cli("keys", "revoke", "000000000000").code == 1


def test_a_key_needs_an_existing_role(project_dir: Path, run_cli: RunCli) -> None:
    assert run_cli("keys", "create", "x").code == 2
    assert run_cli("keys", "create", "x", "--role", "king").code == 2
    assert not Path("windlass.db").exists()


def test_host_and_port_may_be_settings(run_cli: RunCli) -> None:
    Path("windlass.toml").write_text('host = "0.0.0.0"\nport = 0\n')
    done = run_cli("serve", "tasks:app")
    assert (done.code, "0.0.0.0 is reachable from other machines" in done.err) == (2, True)
    done = run_cli("serve", "tasks:app", WINDLASS_PORT="70000")
    assert (done.code, "between 0 and 65535" in done.err) == (2, True)
