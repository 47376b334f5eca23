"""`windlass bench`: measures a store, and leaves nothing but rates in it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import pytest
from tests.server.conftest import LiveServer, run_server
from tests.stores.postgres.server import database_url, execute, migrate, shared_server

from windlass.cli.store_benchmark import StoreBenchmark
from windlass.client import Client
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores import open_store
from windlass.stores.memory import MemoryStore
from windlass.testing.factories import claim_all, make_job, set_paused
from windlass.worker import Worker

SMALL = ["bench", "--jobs", "50"]
STORES = ["sqlite", "postgresql", "http"]
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    server, name = shared_server(), f"bench_{uuid4().hex[:8]}"
    asyncio.run(execute(server, f"CREATE DATABASE {name}"))
    url = database_url(server, name)
    asyncio.run(migrate(url))
    yield url
    asyncio.run(execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = ServerConfig(auth=AuthMode.KEYS, key_cache_ttl=0.05)
    with run_server(tmp_path_factory.mktemp("server"), config) as one:
        yield one


@pytest.fixture
def environment(
    request: pytest.FixtureRequest, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Set the URL and the key of a store with jobs of a user; return the URL for direct reads."""
    kind = getattr(request, "param", "sqlite")
    if kind == "http":
        server: LiveServer = request.getfixturevalue("server")
        monkeypatch.setenv("WINDLASS_URL", server.url)
        monkeypatch.setenv("WINDLASS_KEY", server.key(Role.WORKER, Role.OPERATOR))
        direct = server.app.url
    elif kind == "postgresql":
        direct = request.getfixturevalue("postgres_url")
        monkeypatch.setenv("WINDLASS_URL", direct)
    else:
        direct = f"sqlite:///{project_dir / 'jobs.db'}"
        monkeypatch.setenv("WINDLASS_URL", direct)
    asyncio.run(add_user_jobs(direct))
    return direct


async def add_user_jobs(url: str) -> None:
    """Store jobs that a worker with maintenance would change: due, and with an expired lease."""
    async with open_store(url) as store:
        await store.migrate()
        await store.enqueue([make_job(queue="user") for _ in range(3)])
        await claim_all(store, "user", limit=2, lease=0.01)
        await store.enqueue([make_job(delay=0.01), make_job(expires_in=0.01), make_job()])
    await asyncio.sleep(0.05)  # the jobs are due and expired


def content(url: str) -> tuple[list[JobRow], list[str]]:
    """Return all jobs and the names of all workers."""

    async def read() -> tuple[list[JobRow], list[str]]:
        async with open_store(url) as store:
            rows = (await store.find(JobQuery(limit=1000))).rows
            return list(rows), [one.name for one in await Client(store).workers()]

    return asyncio.run(read())


@pytest.mark.parametrize("environment", STORES, indirect=True)
def test_a_run_has_every_figure_and_leaves_all_jobs_as_they_were(
    run_cli: Any, environment: str
) -> None:
    before = content(environment)
    done = run_cli(*SMALL, "--concurrency", "3", "--json")
    assert (done.code, content(environment)) == (0, before)
    assert "warning: writes 50 jobs to " in done.err
    found = done.json
    assert list(found) == [
        "store", "durability", "queue", "enqueueSingle", "enqueueBatch", "drain", "startLatency",
    ]  # fmt: skip
    jobs = {"enqueueSingle": 5, "enqueueBatch": 45, "drain": 50}
    assert {name: found[name]["jobs"] for name in jobs} == jobs
    for name in jobs:
        assert found[name]["perSecond"] > 0
        assert found[name]["cpuSecondsPerJob"] > 0
    assert (found["enqueueBatch"]["batch"], found["drain"]["concurrency"]) == (45, 3)
    latency = found["startLatency"]
    assert latency["jobs"] == 20
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] < 10
    if environment.startswith("postgresql"):
        assert "power cut" in found["durability"] or "synchronous_commit" in found["durability"]


def test_released_attempts_are_not_counted_as_done(
    run_cli: Any, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stalled process releases prefetched jobs, which run again later."""
    with_released = property(lambda self: {**self._settler.settled, State.QUEUED: 5})
    monkeypatch.setattr(Worker, "settled", with_released)
    done = run_cli(*SMALL, "--json")
    assert done.code == 0
    assert done.json["drain"]["jobs"] == 50
    assert done.json["startLatency"]["p50"] > 0


def rows_per_table(file: Path) -> dict[str, int]:
    connection = apsw.Connection(str(file))
    query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    names = [str(name) for [name] in connection.execute(query)]
    counts = {name: next(connection.execute(f"SELECT count(*) FROM {name}"))[0] for name in names}
    connection.close()
    return counts


def test_only_rates_remain_in_the_file(run_cli: Any, environment: str, project_dir: Path) -> None:
    before = rows_per_table(project_dir / "jobs.db")
    assert run_cli(*SMALL).code == 0
    after = rows_per_table(project_dir / "jobs.db")
    assert {name for name in after if after[name] != before[name]} == {"windlass_rollup"}


def test_a_run_prints_a_table_and_a_line_per_phase(run_cli: Any, environment: str) -> None:
    done = run_cli(*SMALL)
    for text in ("enqueue one by one", "enqueue 45 a call", "drain, 10 at a time", "p95"):
        assert text in done.out
    assert "full: accepted jobs survive a power cut" in done.out
    lines = done.err.splitlines()
    assert lines[1:] == [
        "enqueue one by one: 5 jobs",
        "enqueue 45 a call: 45 jobs",
        "drain, 10 at a time: 50 jobs",
        "start latency: 20 jobs",
        "remove: 70 jobs",
    ]


def test_a_terminal_shows_figures_and_a_bar(open_terminal: Any, environment: str) -> None:
    terminal = open_terminal(100, *SMALL)
    assert terminal.end() == 0
    assert "start latency  p50" in terminal.shown
    assert "━" in terminal.shown  # the bar


def test_a_store_in_memory_is_measured(run_cli: Any, project_dir: Path) -> None:
    done = run_cli(*SMALL, "--url", "memory:")
    assert done.code == 0
    assert "jobs in memory are lost when their process ends" in done.out


def test_the_store_of_an_app_is_measured(run_cli: Any, enqueue_job: Any) -> None:
    enqueue_job("add", a=1)
    found = run_cli(*SMALL, "-A", "tasks:app", "--json").json
    assert found["store"].startswith("sqlite:///")


def interrupt(phase: str, number: signal.Signals, *options: str) -> int:
    """Send the signal when this phase starts; return the exit code."""
    bench = subprocess.Popen(
        [sys.executable, "-m", "windlass", "bench", "--jobs", "5000", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert bench.stderr is not None
    timer = threading.Timer(60, bench.kill)
    timer.start()
    try:
        for line in bench.stderr:
            if line.startswith(phase):
                bench.send_signal(number)
                break
        bench.communicate()
    finally:
        timer.cancel()
        bench.kill()
    return bench.returncode


@pytest.mark.parametrize(
    ("environment", "phase", "number"),
    [
        ("sqlite", "enqueue one by one", signal.SIGINT),
        ("sqlite", "drain", signal.SIGTERM),
        ("sqlite", "start latency", signal.SIGINT),
        ("postgresql", "enqueue 1,000 a call", signal.SIGINT),
        ("postgresql", "drain", signal.SIGINT),
        ("http", "drain", signal.SIGINT),
    ],
    indirect=["environment"],
)
def test_an_interrupted_run_removes_its_jobs(
    environment: str, phase: str, number: signal.Signals
) -> None:
    before = content(environment)
    assert interrupt(phase, number) == EXIT_CODES[number]
    assert content(environment) == before


def test_a_failed_run_removes_its_jobs(
    run_cli: Any, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailableError("disk full")

    before = content(environment)
    monkeypatch.setattr(StoreBenchmark, "_measure_latencies", fail)
    done = run_cli(*SMALL)
    assert (done.code, content(environment)) == (3, before)
    assert "disk full" in done.err


def test_waiting_jobs_are_canceled_and_removed(
    run_cli: Any, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is paused during the run, so the drain never ends."""

    async def pause(self: StoreBenchmark, *given: Any) -> Any:
        await set_paused(self._client.store, [self._queue], paused=True)
        return await drain(self, *given)

    before, drain = content(environment), StoreBenchmark._time_drain
    monkeypatch.setattr(StoreBenchmark, "_time_drain", pause)
    monkeypatch.setattr("windlass.cli.store_benchmark.STALL_TIMEOUT", 0.2)
    done = run_cli(*SMALL, "--queue", "scratch")
    assert done.code == 1
    assert "no job of queue scratch finished for 0 s: is it paused" in done.err
    assert content(environment) == before


def test_a_failed_removal_names_the_queue_and_a_command(
    run_cli: Any, project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, calls = MemoryStore.delete, iter(range(9))

    async def fail(self: MemoryStore, *given: Any) -> Any:
        if next(calls) < 2:  # the job that warms up: waiting, then canceled
            return await delete(self, *given)
        raise StoreUnavailableError("unreachable")

    monkeypatch.setattr(MemoryStore, "delete", fail)
    done = run_cli(*SMALL, "--url", "memory:", "--queue", "scratch")
    assert done.code == 3
    assert "70 jobs of the benchmark remain in queue scratch: unreachable" in done.err
    assert "windlass queues clear scratch" in done.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--jobs", "9"], 2, "--jobs is 9; it must be between 10 and 200,000"),
        (["--jobs", "200001"], 2, "--jobs is 200,001; it must be between 10 and 200,000"),
        (["--concurrency", "0"], 2, "--concurrency is 0; it must be between 1 and 1,000"),
        (["--queue", "user"], 1, "queue user is in use"),
        (["--queue", "stopped"], 1, "queue stopped is paused"),
        (["--queue", "x" * 200], 2, "queue has 200 characters, the limit is 128"),
        (["--url", "sqlite:///missing.db"], 3, "No database at"),
    ],
)
def test_an_invalid_option_is_rejected_before_any_write(
    run_cli: Any, environment: str, options: list[str], code: int, message: str
) -> None:
    run_cli("queues", "pause", "stopped")
    before = content(environment)
    done = run_cli("bench", *options)
    assert done.code == code
    assert message in " ".join(done.err.split())
    assert "writes" not in done.err
    assert content(environment) == before


@pytest.mark.parametrize(
    ("roles", "owner", "missing"),
    [
        ([Role.PRODUCER], None, "'work' and 'delete' (roles: producer)"),
        ([Role.WORKER], None, "'delete' (roles: worker)"),
        ([Role.OPERATOR], None, "'work' (roles: operator)"),
        ([Role.ADMIN], "me", "'work' (roles: admin, limited to one owner or team)"),
    ],
)
def test_a_key_without_a_permission_is_refused_before_any_write(
    run_cli: Any, server: LiveServer, roles: list[Role], owner: str | None, missing: str
) -> None:
    before = content(server.app.url)
    key = server.key(*roles, owner=owner)
    done = run_cli(*SMALL, "--url", server.url, WINDLASS_KEY=key)
    assert done.code == 3
    assert f"the key of test lacks the permission {missing}. Use a key with the roles" in done.err
    assert content(server.app.url) == before
