"""Server outages under running workers: workers keep running, log the problem, and recover."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import pytest_asyncio
from tests.stores.postgres.server import database_url, execute, migrate
from tests.stores.postgres.unstable_server import (
    UnstableServer,
    as_user,
    kill_all,
    network,
    unstable_server,
    with_options,
)
from typer.testing import CliRunner

from windlass import Job, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.stores.postgres import PostgresConfig, PostgresStore, notify
from windlass.stores.postgres import store as store_module
from windlass.stores.postgres.connection import SOCKET_OPTIONS, connect
from windlass.testing.factories import claim_all, make_job, start_one

WAIT_TIMEOUT = 30.0
OUTAGE_SECONDS = 0.6  # long enough for several tries of a loop
SOON = 10.0  # seconds; the documented recovery time on an idle machine is 2 s
IS_LISTENER = "query ILIKE 'LISTEN%'"


@pytest.fixture(scope="module")
def server() -> Iterator[UnstableServer]:
    with unstable_server() as server:
        server.add_hba_rule("local all ann scram-sha-256")
        asyncio.run(execute(server.url, "CREATE ROLE ann LOGIN PASSWORD 's3cret'"))
        yield server


@pytest_asyncio.fixture
async def url(server: UnstableServer) -> AsyncIterator[str]:
    """URL of a new database with the schema; its owner is ann."""
    name = f"outage_{uuid4().hex[:12]}"
    await execute(server.url, f"CREATE DATABASE {name} OWNER ann")
    place = database_url(server.url, name)
    ann = as_user(place, "ann", "s3cret")
    await migrate(ann)
    yield ann
    await execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


def root(server: UnstableServer, url: str) -> str:
    return database_url(server.url, urlsplit(url).path[1:])


class WorkerApp:
    """App with two tasks, and a worker that runs them during the test."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.gate = asyncio.Event()
        self.started = asyncio.Event()

        @self.app.task(name="double")
        async def double(number: int) -> int:
            return 2 * number

        @self.app.task
        async def blocked_task() -> str:
            self.started.set()
            await self.gate.wait()
            return "done"

        self.double, self.blocked_task = double, blocked_task

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        config = WorkerConfig(
            **{"poll_interval": 0.5, "sweep_interval": 0.2, "lease": 30.0} | options
        )
        worker = self.app.worker(config)
        running = asyncio.create_task(worker.run())
        try:
            yield running
            assert not running.done(), "the worker has stopped"
        finally:
            worker.stop()
            await asyncio.wait_for(running, WAIT_TIMEOUT)
            await self.app.aclose()

    async def run_job(self, number: int) -> None:
        """Enqueue a job, with retries during an outage, and wait for its result."""
        job: Job[int] | None = None
        async with asyncio.timeout(WAIT_TIMEOUT):
            while job is None:
                try:
                    job = await self.double.options(request_id=f"n{number}").aenqueue(number)
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)
            assert await self.result(job) == 2 * number

    async def result(self, job: Job[Any]) -> Any:
        """Return the result of a job; retry while the store is unavailable."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while True:
                try:
                    return await job.aresult()
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)


async def wait_for_log(caplog: pytest.LogCaptureFixture, what: str) -> str:
    """Wait for a log message."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while True:
            for line in caplog.messages:
                if what in line:
                    return line
            await asyncio.sleep(0.02)


def assert_plain_log(caplog: pytest.LogCaptureFixture) -> None:
    """Check that each failure has one log line, without traceback or password."""
    assert not [record for record in caplog.records if record.exc_info]
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text
    failed = [line for line in caplog.messages if "failed" in line]
    assert len(failed) == len(set(failed)), failed


# -- server restarts


@pytest.mark.slow
async def test_killed_backends_cost_no_job_and_no_attempt(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_app = WorkerApp(url)
    async with worker_app.working():
        held = await worker_app.blocked_task.aenqueue()
        await asyncio.wait_for(worker_app.started.wait(), WAIT_TIMEOUT)
        for number in range(3):
            assert await kill_all(root(server, url))
            await worker_app.run_job(number)
        worker_app.gate.set()
        assert await worker_app.result(held) == "done"
    assert {(row.state, row.attempt) for row in await rows(url)} == {(State.SUCCEEDED, 1)}
    assert_plain_log(caplog)


async def test_after_a_server_crash_work_continues(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_app = WorkerApp(url)
    async with worker_app.working():
        held = await worker_app.blocked_task.aenqueue()
        await asyncio.wait_for(worker_app.started.wait(), WAIT_TIMEOUT)
        waiting = [await worker_app.double.options(delay=0.5).aenqueue(n) for n in range(3)]
        await server.actl("-m", "immediate", "stop")
        await wait_for_log(caplog, "Claiming jobs failed")
        worker_app.gate.set()  # the task ends while the server is down
        await wait_for_log(caplog, "Settling 1 jobs failed")
        await server.actl("start")
        back = asyncio.get_running_loop().time()
        await worker_app.run_job(7)
        assert asyncio.get_running_loop().time() - back < SOON
        assert await worker_app.result(held) == "done"
        assert [await worker_app.result(job) for job in waiting] == [0, 2, 4]
        assert {row.attempt for row in await rows(url)} == {1}
    assert "Claiming jobs recovered" in caplog.text
    assert_plain_log(caplog)


TASKS = """
from windlass import Windlass
app = Windlass()

@app.task(name="double")
async def double(number: int) -> int:
    return 2 * number
"""


@pytest.mark.slow
async def test_a_worker_process_survives_restarts_and_logs_little(
    server: UnstableServer, url: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    arguments = ["-m", "windlass", "worker", "tasks:app"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments,
        cwd=tmp_path, env=os.environ | {"WINDLASS_URL": url}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    worker_app = WorkerApp(url)
    await worker_app.run_job(1)
    for number in (2, 3):
        await server.actl("-m", "immediate", "restart")
        await worker_app.run_job(number)
    await worker_app.app.aclose()
    process.send_signal(signal.SIGTERM)
    _, output = await asyncio.wait_for(process.communicate(), WAIT_TIMEOUT)
    assert process.returncode == 0
    assert b"Traceback" not in output
    assert b"s3cret" not in output
    lines = [re.sub(r"^\S+ \S+ ", "", line) for line in output.decode().splitlines()]
    assert len(lines) < 30, output.decode()


# -- lost LISTEN connections


@pytest.mark.slow
async def test_a_frozen_listener_is_replaced_and_workers_poll_meanwhile(
    server: UnstableServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.2)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 0.5)
    place = root(server, url)
    pids = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {IS_LISTENER}"
    worker_app = WorkerApp(url)
    async with worker_app.working():
        await worker_app.run_job(0)
        frozen = {pid for [pid] in await execute(place, pids)}
        assert frozen
        try:
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            await worker_app.run_job(1)  # without a wake-up: by polling

            async def reconnected() -> bool:
                return bool({pid for [pid] in await execute(place, pids)} - frozen)

            await poll_until(reconnected)
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_when_only_listeners_are_killed_nothing_is_logged_and_work_continues(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_app = WorkerApp(url)
    async with worker_app.working():
        await worker_app.run_job(0)
        for number in range(1, 4):
            await kill_all(root(server, url), IS_LISTENER)
            await worker_app.run_job(number)
    assert caplog.messages == []


# -- the network


@pytest.mark.slow
async def test_a_worker_recovers_from_a_network_that_drops_everything(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with network(server, urlsplit(url).path[1:]) as (proxy, proxy_url):
        worker_app = WorkerApp(with_options(proxy_url, timeout=1, connect_timeout=1))
        async with worker_app.working():
            await worker_app.run_job(0)
            proxy.silent = True
            line = await wait_for_log(caplog, "Claiming jobs failed")
            assert "did not respond in time" in line
            proxy.silent = False
            await worker_app.run_job(1)
    assert_plain_log(caplog)


@pytest.mark.slow
async def test_a_silent_failover_costs_one_timeout_for_all_connections(
    server: UnstableServer, url: str
) -> None:
    async with (
        network(server, urlsplit(url).path[1:]) as (proxy, proxy_url),
        PostgresStore(proxy_url) as store,
    ):
        await asyncio.gather(*(store.ping() for _ in range(5)))
        idle: list[Any] = [*store._shared_engine._pool._idle]
        assert len(idle) == 5
        for connection in idle:  # connections that respond again keep the usual timeout
            connection._config = connection._config._replace(command_timeout=1)
        proxy.fail_over()
        with pytest.raises(StoreUnavailableError, match="did not respond in time"):
            await store.ping()
        await store.ping()


@pytest.mark.slow
async def test_after_a_silent_failover_leases_and_claims_do_not_wait_for_the_usual_timeout(
    server: UnstableServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        network(server, urlsplit(url).path[1:]) as (proxy, proxy_url),
        PostgresStore(with_options(proxy_url, timeout=10 * WAIT_TIMEOUT)) as store,
    ):
        row = await start_one(store)
        async with asyncio.timeout(WAIT_TIMEOUT):
            proxy.fail_over()
            with pytest.raises(StoreUnavailableError, match="did not respond in time"):
                await store.extend([row.lease], 6.0)
            # A longer lease allows a longer timeout, so this call succeeds.
            assert not (await store.extend([row.lease], 10 * WAIT_TIMEOUT))[0].stale
            proxy.fail_over()
            with monkeypatch.context() as patch:
                patch.setattr(store_module, "CLAIM_TIMEOUT", 0.5)
                with pytest.raises(StoreUnavailableError, match="did not respond in time"):
                    await claim_all(store)
            assert await claim_all(store) == []


async def test_connections_have_keepalive_socket_options(server: UnstableServer, url: str) -> None:
    async with network(server, urlsplit(url).path[1:]) as (_, proxy_url):
        connection: Any = await connect(PostgresConfig(url=proxy_url))
        borrowed = connection._transport.get_extra_info("socket")
        assert [
            borrowed.getsockopt(level, getattr(socket, name)) for level, name, _ in SOCKET_OPTIONS
        ] == [value for _, _, value in SOCKET_OPTIONS]
        await connection.close()


@pytest.mark.slow
async def test_commits_with_lost_responses_are_repeated_and_count_once(
    server: UnstableServer, url: str
) -> None:
    jobs = [make_job(task="double", payload=b'{"number":1}') for _ in range(20)]

    async def ended() -> bool:
        return all(row.state is State.SUCCEEDED for row in await rows(url))

    async with network(server, urlsplit(url).path[1:]) as (proxy, proxy_url):
        worker_app = WorkerApp(proxy_url)
        async with worker_app.working(poll_interval=0.05), PostgresStore(proxy_url) as producer:
            proxy.loses = 0.1
            async with asyncio.timeout(WAIT_TIMEOUT):
                for job in jobs:
                    await enqueue_until_stored(producer, job)
            await poll_until(ended)
            proxy.loses = 0
    assert proxy.lost > 5
    found = await rows(url)
    assert len(found) == len(jobs)
    assert {(row.attempt, row.crash_count, row.retry_count) for row in found} == {(1, 0, 0)}


async def enqueue_until_stored(store: PostgresStore, job: NewJob) -> None:
    while True:
        with contextlib.suppress(StoreUnavailableError):
            [answer] = await store.enqueue([job])
            assert answer.row is not None
            assert answer.row.id == job.id
            return


async def poll_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not await condition():  # noqa: ASYNC110 - polls the server
            await asyncio.sleep(0.05)


async def rows(url: str) -> list[JobRow]:
    async with PostgresStore(url) as store:
        return list((await store.find(JobQuery())).rows)


# -- changed settings


FAULTS = {
    "password": (
        "ALTER ROLE ann PASSWORD 'other'",
        "ALTER ROLE ann PASSWORD 's3cret'",
        "refused the user or the password",
    ),
    "connections": (
        "ALTER ROLE ann CONNECTION LIMIT 0",
        "ALTER ROLE ann CONNECTION LIMIT -1",
        "has no free connections",
    ),
    "login": (
        "ALTER ROLE ann NOLOGIN",
        "ALTER ROLE ann LOGIN",
        "refused the user or the password",
    ),
    "read-only": (
        "ALTER DATABASE {name} SET default_transaction_read_only = on",
        "ALTER DATABASE {name} RESET default_transaction_read_only",
        "is read-only",
    ),
    "closed": (
        "ALTER DATABASE {name} ALLOW_CONNECTIONS false",
        "ALTER DATABASE {name} ALLOW_CONNECTIONS true",
        "accepts no connections",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
async def test_a_worker_logs_the_problem_and_continues_when_it_is_fixed(
    server: UnstableServer, url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = urlsplit(url).path[1:]
    break_sql, fix_sql, message = (text.format(name=name) for text in FAULTS[kind])
    worker_app = WorkerApp(url)
    async with worker_app.working():
        await worker_app.run_job(0)
        await execute(server.url, break_sql)
        try:
            others = (
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            await execute(server.url, others)
            line = await wait_for_log(caplog, message)
            assert "postgresql://ann@" in line
            await asyncio.sleep(OUTAGE_SECONDS)
        finally:
            await execute(server.url, fix_sql)
        await worker_app.run_job(1)
    assert_plain_log(caplog)


async def test_a_read_only_connection_is_not_kept(server: UnstableServer, url: str) -> None:
    break_sql, fix_sql, message = (
        text.format(name=urlsplit(url).path[1:]) for text in FAULTS["read-only"]
    )
    await execute(server.url, break_sql)
    async with PostgresStore(with_options(url, pool=1)) as store:
        with pytest.raises(StoreUnavailableError, match=message):
            await store.enqueue([make_job()])
        await execute(server.url, fix_sql)
        await store.enqueue([make_job()])


@pytest.mark.slow
async def test_a_dropped_database_may_be_created_again(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = urlsplit(url).path[1:]
    worker_app = WorkerApp(url)
    async with worker_app.working():
        await worker_app.run_job(0)
        await execute(server.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        others = (
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        await execute(server.url, others)
        await execute(server.url, f"ALTER DATABASE {name} RENAME TO {name}_away")
        assert "createdb" in await wait_for_log(caplog, "has no such database")
        await execute(server.url, f"ALTER DATABASE {name}_away RENAME TO {name}")
        await execute(server.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await worker_app.run_job(1)
    assert_plain_log(caplog)


SCHEMA_FAULTS = {
    "schema": (
        "ALTER TABLE windlass_queued RENAME TO elsewhere",
        "ALTER TABLE elsewhere RENAME TO windlass_queued",
        "run windlass migrate",
    ),
    "privilege": (
        "ALTER TABLE windlass_queued OWNER TO postgres",
        "ALTER TABLE windlass_queued OWNER TO ann",
        "grant what is missing",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEMA_FAULTS)
async def test_a_worker_logs_missing_privileges_or_tables_and_continues(
    server: UnstableServer, url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    break_sql, fix_sql, message = SCHEMA_FAULTS[kind]
    place = root(server, url)
    worker_app = WorkerApp(url)
    async with worker_app.working():
        await worker_app.run_job(0)
        await execute(place, break_sql)
        await wait_for_log(caplog, message)
        await execute(place, fix_sql)
        await worker_app.run_job(1)
    assert_plain_log(caplog)


async def test_a_worker_waits_until_the_schema_is_migrated(
    server: UnstableServer, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"outage_{uuid4().hex[:12]}"
    await execute(server.url, f"CREATE DATABASE {name} OWNER ann")
    place = as_user(database_url(server.url, name), "ann", "s3cret")
    worker_app = WorkerApp(place)
    async with worker_app.working():
        await wait_for_log(caplog, "no Windlass schema: run windlass migrate")
        await migrate(place)
        await worker_app.run_job(1)
    assert_plain_log(caplog)
    await execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
async def test_a_worker_on_a_standby_runs_jobs_after_the_promotion(
    server: UnstableServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker_app = WorkerApp(url)
    job = await worker_app.double.aenqueue(21)
    await worker_app.app.aclose()
    with server.standby() as (place, promote):
        worker_app = WorkerApp(database_url(place, urlsplit(url).path[1:]))
        async with worker_app.working():
            await wait_for_log(caplog, "is read-only")
            await asyncio.to_thread(promote)
            assert await worker_app.result(await worker_app.app.ajob(job.id)) == 42
            await worker_app.run_job(1)
    assert_plain_log(caplog)


# -- the command line


SLOW_FAULTS = ("connections", "closed")


@pytest.mark.parametrize("arguments", [["jobs", "list"], ["queues", "pause", "media"], ["migrate"]])
@pytest.mark.parametrize(
    "kind", ["password", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_FAULTS)]
)
def test_commands_print_one_line_and_exit_with_the_code_of_an_unreachable_store(
    server: UnstableServer, url: str, kind: str, arguments: list[str]
) -> None:
    break_sql, fix_sql, message = (
        text.format(name=urlsplit(url).path[1:]) for text in FAULTS[kind]
    )
    asyncio.run(execute(server.url, break_sql))
    try:
        answer = CliRunner().invoke(cli, [*arguments, "--url", url])
    finally:
        asyncio.run(execute(server.url, fix_sql))
    assert answer.exit_code == 3
    assert message in answer.stderr
    assert answer.stderr.startswith("error: postgresql://ann@")
    assert answer.stderr.count("\n") == 1
    assert "s3cret" not in answer.output


def test_read_commands_work_on_a_read_only_server(server: UnstableServer, url: str) -> None:
    break_sql, fix_sql, message = (
        text.format(name=urlsplit(url).path[1:]) for text in FAULTS["read-only"]
    )
    asyncio.run(execute(server.url, break_sql))
    try:
        assert CliRunner().invoke(cli, ["jobs", "list", "--url", url]).exit_code == 0
        refused = CliRunner().invoke(cli, ["queues", "pause", "media", "--url", url])
        assert refused.exit_code == 3
        assert message in refused.stderr
    finally:
        asyncio.run(execute(server.url, fix_sql))
