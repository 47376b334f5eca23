"""A worker waits for its store at the start, and ends on errors that waiting cannot fix."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from tests.stores.postgres.server import database_url, execute, migrate
from tests.stores.postgres.unstable_server import UnstableServer, as_user, unstable_server

from windlass import Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.stores import is_transient

WAIT_TIMEOUT = 30.0
NOWHERE = "postgresql://ann:s3cret@127.0.0.1:1/jobs"


@pytest.fixture(scope="module")
def server() -> Iterator[UnstableServer]:
    with unstable_server() as server:
        server.add_hba_rule("local all ann scram-sha-256")
        asyncio.run(execute(server.url, "CREATE ROLE ann LOGIN PASSWORD 's3cret'"))
        yield server


@pytest_asyncio.fixture
async def url(server: UnstableServer) -> AsyncIterator[str]:
    """A database of its own without a schema."""
    name = f"reach_{uuid4().hex[:12]}"
    await execute(server.url, f"CREATE DATABASE {name} OWNER ann")
    yield as_user(database_url(server.url, name), "ann", "s3cret")
    await execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def start_worker(project_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(url: str, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "worker", "tasks:app", *words],
            cwd=project_dir,
            env=os.environ | {"WINDLASS_URL": url},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line_of(worker: subprocess.Popen[str], words: str) -> str:
    assert worker.stderr is not None
    for line in worker.stderr:
        if words in line:
            return line
    raise AssertionError(f"{words!r} did not appear")


async def add(url: str) -> int:
    """Enqueue a job and return its result."""
    app = Windlass(url)

    @app.task(name="tasks.add")
    async def add(a: int, b: int) -> int:
        raise NotImplementedError

    try:
        job = await add.aenqueue(1, 2)
        await job.await_end(WAIT_TIMEOUT)
        return await job.aresult()
    finally:
        await app.aclose()


@pytest.mark.slow
async def test_a_worker_waits_for_a_server_that_starts_late(
    server: UnstableServer, url: str, start_worker: Any
) -> None:
    await migrate(url)
    await server.actl("-m", "immediate", "stop")
    try:
        worker = start_worker(url)
        output = await asyncio.to_thread(
            line_of, worker, "Connecting to the store failed; retrying"
        )
        assert "cannot be reached" in output
        assert "s3cret" not in output
    finally:
        await server.actl("start")
    # Other errors of a starting server may be logged in between.
    assert "Connecting to the store" in await asyncio.to_thread(line_of, worker, "recovered")
    assert await add(url) == 3
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, WAIT_TIMEOUT) == 0
    assert "Traceback" not in worker.stderr.read()


@pytest.mark.slow
async def test_a_worker_waits_for_a_schema_that_is_created_later(
    url: str, start_worker: Any
) -> None:
    worker = start_worker(url)
    output = await asyncio.to_thread(line_of, worker, "Connecting to the store failed; retrying")
    assert "no Windlass schema: run windlass migrate" in output
    await migrate(url)
    assert await add(url) == 3
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, WAIT_TIMEOUT) == 0


async def test_a_worker_that_is_too_old_for_the_schema_exits_with_a_message(
    url: str, start_worker: Any
) -> None:
    await migrate(url)
    await execute(url, "INSERT INTO windlass_schema VALUES (999, 'later', 'x', 1, 0)")
    worker = start_worker(url)
    _, output = await asyncio.to_thread(worker.communicate, timeout=WAIT_TIMEOUT)
    assert worker.returncode == 3
    assert "upgrade Windlass" in output


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="alone"),
        pytest.param(["--processes", "2"], id="supervised", marks=pytest.mark.slow),
    ],
)
async def test_a_worker_that_waits_for_its_store_stops_at_once(
    start_worker: Any, words: list[str]
) -> None:
    worker = start_worker(NOWHERE, *words)
    await asyncio.to_thread(line_of, worker, "Connecting to the store failed; retrying")
    worker.send_signal(signal.SIGTERM)
    output = await asyncio.to_thread(worker.stderr.read)
    assert worker.wait(WAIT_TIMEOUT) == 0
    assert "retrying" not in output.replace("Connecting to the store failed; retrying", "", 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(
            lambda url: as_user(url, "ann", "hunter2"),
            "refused the user or the password",
            id="password",
        ),
        pytest.param(
            lambda url: database_url(url, "nowhere"),
            "has no such database",
            id="database",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda url: f"{url}&sslmode=perhaps", "is invalid", id="option", marks=pytest.mark.slow
        ),
        pytest.param(lambda url: url.replace("@", ":x@y@"), "%40 for @", id="url"),
    ],
)
async def test_errors_that_waiting_cannot_fix_end_the_worker_with_a_message(
    url: str, start_worker: Any, wrong: Callable[[str], str], message: str
) -> None:
    worker = start_worker(wrong(url))
    _, output = await asyncio.to_thread(worker.communicate, timeout=WAIT_TIMEOUT)
    assert worker.returncode in {2, 3}
    assert message in output
    assert "retrying" not in output
    assert "Traceback" not in output
    assert "s3cret" not in output
    assert "hunter2" not in output


async def test_a_burst_does_not_wait(start_worker: Any) -> None:
    worker = start_worker(NOWHERE, "--burst")
    _, output = await asyncio.to_thread(worker.communicate, timeout=WAIT_TIMEOUT)
    assert worker.returncode == 3
    assert "error: postgresql://ann@127.0.0.1:1/jobs cannot be reached" in output


@pytest.mark.parametrize(
    ("state", "passes"),
    [("57P03", True), ("53300", True), ("08006", True), ("28P01", False), ("3D000", False),
     ("42501", False), ("25006", False)],
)  # fmt: skip
def test_server_errors_are_transient_and_client_errors_are_not(state: str, passes: bool) -> None:
    class ServerError(Exception):
        sqlstate = state

    error = StoreUnavailableError("no")
    error.__cause__ = ServerError()
    assert is_transient(error) is passes
