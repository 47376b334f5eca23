"""Workers, clients and commands that have only a server URL and a key, no database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from windlass import Windlass
from windlass.cli import cli
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery, Page
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.stores import open_store

WAIT_TIMEOUT = 60.0
TASKS = """
import asyncio
from pathlib import Path
from windlass import Context, Limit, Windlass

app = Windlass(limits={"queue:default": Limit(concurrency=50)})

@app.task(name="mark")
async def mark(ctx: Context, number: int, gate: str | None = None) -> int:
    with Path("ran").open("a") as file:
        file.write(f"{number}\\n")
    ctx.progress(50, "half")
    while gate is not None and not Path(gate).exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.005)
    return number

@app.schedule(every="1h", name="hourly")
@app.task(name="hourly")
async def hourly() -> None: ...
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + WAIT_TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)
    return found


class RemoteSite:
    """A directory with tasks, where a server process and commands run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = f"sqlite:///{place}/jobs.db"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: list[subprocess.Popen[bytes]] = []
        (place / "tasks.py").write_text(TASKS)

    def _environment(self, key: str | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "WINDLASS_" not in name}
        settings = {"WINDLASS_URL": self.url} | ({} if key is None else {"WINDLASS_KEY": key})
        return kept | settings

    def start(self, *arguments: str, key: str | None = None) -> subprocess.Popen[bytes]:
        log = (self.place / f"{arguments[0]}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=self.place,
            env=self._environment(key),
            stdout=log,
            stderr=log,
        )
        log.close()
        self._running.append(process)
        return process

    def call(self, *arguments: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "windlass", *arguments],
            cwd=self.place,
            env=self._environment(key),
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_TIMEOUT,
        )

    def serve(self) -> subprocess.Popen[bytes]:
        server = self.start("serve", "--url", self.store, "--port", str(self.port))
        until(self._answers, "the server")
        return server

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def make_key(self, role: str, owner: str | None = None) -> str:
        async def make() -> str:
            async with open_store(self.store) as store:
                return (await ApiKeys(store).create(role, [Role(role)], owner=owner))[1]

        return asyncio.run(make())

    def ran(self) -> list[int]:
        path = self.place / "ran"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def has_run(self, more_than: int) -> bool:
        return len(self.ran()) > more_than

    def stop(self) -> None:
        for item in self._running:
            if item.poll() is None:
                item.send_signal(signal.SIGKILL)
            item.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RemoteSite]:
    site = RemoteSite(tmp_path)
    yield site
    site.stop()


class Producer:
    """An app with a producer key; it enqueues and lists jobs."""

    def __init__(self, site: RemoteSite) -> None:
        self.app = Windlass(site.url, key=site.make_key("producer"), data=site.place)

        @self.app.task(name="mark")
        async def mark(number: int, gate: str | None = None) -> None: ...

        self._mark = mark

    def enqueue(self, numbers: range, gate: str | None = None) -> None:
        self.app.enqueue_many([self._mark.new_job(number, gate) for number in numbers])

    def rows(self) -> dict[int, Any]:
        query = JobQuery(tasks=frozenset({"mark"}), limit=1000)

        async def find() -> Page:
            return await self.app.client().store.find(query)

        return {json.loads(row.payload)["number"]: row for row in self.app.sync.call(find()).rows}


@pytest.mark.slow
def test_jobs_of_a_killed_worker_are_rescued_over_http(site: RemoteSite) -> None:
    producer, worker = Producer(site), site.make_key("worker")
    site.serve()
    producer.enqueue(range(3), "gate")
    first = site.start("worker", "tasks:app", "--lease", "10s", key=worker)
    until(lambda: len(site.ran()) == 3, "the first attempts")
    first.send_signal(signal.SIGKILL)
    first.wait()
    site.start("worker", "tasks:app", "--lease", "10s", key=worker)
    until(lambda: len(site.ran()) == 6, "the rescue")
    (site.place / "gate").touch()
    until(lambda: all(row.final for row in producer.rows().values()), "the end")
    for row in producer.rows().values():
        assert (row.state, row.attempt, row.crash_count) == (State.SUCCEEDED, 2, 1)
        job = producer.app.job(row.id)
        assert [event.seq for event in job.events()] == list(range(1, row.seq + 1))
    producer.app.close()


@pytest.mark.slow
def test_a_restarted_server_loses_and_repeats_no_job(
    site: RemoteSite,
) -> None:
    producer, worker = Producer(site), site.make_key("worker")
    server = site.serve()
    producer.enqueue(range(100))
    producer.enqueue(range(100, 103), "gate")
    arguments = ("worker", "tasks:app", "--concurrency", "4", "--lease", "60s")
    worker_process = site.start(*arguments, key=worker)
    for number in range(2):
        until(partial(site.has_run, 10 * (number + 1)), "some work")
        server.send_signal(signal.SIGKILL)
        server.wait()
        server = site.serve()
        producer.enqueue(range(200 + 10 * number, 210 + 10 * number))
    (site.place / "gate").touch()
    expected = {*range(103), *range(200, 220)}
    until(lambda: sum(row.final for row in producer.rows().values()) == len(expected), "the end")
    found = producer.rows()
    assert found.keys() == expected
    assert {row.state for row in found.values()} == {State.SUCCEEDED}
    assert {row.attempt for row in found.values()} == {1}
    assert sorted(site.ran()) == sorted(expected)
    assert worker_process.poll() is None, "the worker outlives its server"
    producer.app.close()


@pytest.fixture
def run_command(site: RemoteSite, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in this process, with only a server URL and a key."""
    for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(site.place)
    monkeypatch.setenv("WINDLASS_URL", site.url)

    def run(*arguments: str, key: str | None, code: int = 0) -> str:
        with monkeypatch.context() as patch:
            if key is not None:
                patch.setenv("WINDLASS_KEY", key)
            done = CliRunner().invoke(cli, list(arguments))
        assert done.exit_code == code, (arguments, done.output, done.exception)
        assert key is None or key[-20:] not in done.output
        return done.output

    return run


@pytest.mark.slow
def test_every_command_works_with_a_server_and_a_key(
    site: RemoteSite, run_command: Callable[..., str]
) -> None:
    admin, viewer = site.make_key("admin"), site.make_key("viewer")
    site.serve()
    created = site.call("enqueue", "-A", "tasks:app", "mark", "number=1", "--json", key=admin)
    job = json.loads(created.stdout)["id"]
    assert site.call("worker", "tasks:app", "--burst", key=admin).returncode == 0
    assert site.ran() == [1]
    assert json.loads(run_command("jobs", "show", job, "--json", key=admin))["state"] == "succeeded"
    assert job in run_command("jobs", "list", "--json", key=admin)
    for arguments in (("watch", job), ("logs", job), ("why", job)):
        run_command("jobs", *arguments, key=admin)
    [again] = json.loads(run_command("jobs", "retry", job, "--json", key=admin))
    run_command("jobs", "cancel", again["id"], key=admin)
    run_command("jobs", "delete", job, key=admin)
    for line in ("queues list", "queues pause x", "queues resume x", "workers list"):
        run_command(*line.split(), key=admin)
    assert "hourly" in run_command("schedules", "list", key=admin)
    assert "queue:default" in run_command("limits", "list", key=admin)
    assert "up to date" in run_command("migrate", key=admin)
    more = json.loads(
        run_command("keys", "create", "more", "--role", "viewer", "--json", key=admin)
    )
    run_command("keys", "revoke", more["id"], key=admin)
    result = run_command("check", key=admin)
    assert "of admin: admin, for all jobs" in " ".join(result.split())
    assert "***" in run_command("config", "show", key=admin)
    assert json.loads(run_command("config", "show", "--json", key=admin))["key"]["value"] == "***"
    for line in ("jobs list", "check", "queues list"):
        assert "requires an API key" in run_command(*line.split(), key=None, code=3)
    assert "permission 'operate'" in run_command("queues", "pause", "x", key=viewer, code=3)
    assert "is itself a server" in run_command("serve", key=admin, code=2)


@pytest.mark.slow
def test_a_worker_without_the_permission_exits_with_an_error(site: RemoteSite) -> None:
    viewer = site.make_key("viewer")
    site.serve()
    for key, result in ((viewer, "permission 'work'"), (None, "requires an API key")):
        done = site.call("worker", "tasks:app", "--burst", key=key)
        assert done.returncode == 3, done.stderr
        assert result in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_producer_key_of_one_owner_can_enqueue_and_list(
    site: RemoteSite, run_command: Callable[..., str]
) -> None:
    """Even if its code declares limits, which the key cannot set."""
    key = site.make_key("producer", "alice")
    site.serve()
    result = site.call("enqueue", "-A", "tasks:app", "mark", "number=7", "--json", key=key)
    assert result.returncode == 0, result.stderr
    created = json.loads(result.stdout)
    [listed] = json.loads(run_command("jobs", "list", "--json", key=key))["jobs"]
    assert listed["id"] == created["id"]
    assert (
        json.loads(run_command("jobs", "show", created["id"], "--json", key=key))["owner"]
        == "alice"
    )
