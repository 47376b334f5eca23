"""A server that breaks under running workers: they stay, log the problem, and continue."""

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
    Breakable,
    as_user,
    breakable_server,
    kill_all,
    network,
    with_options,
)
from typer.testing import CliRunner

from windlass import Job, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.stores.postgres import PostgresConfig, PostgresStore, notify
from windlass.stores.postgres import store as store_module
from windlass.stores.postgres.connection import SOCKET_OPTIONS, connect
from windlass.testing.factories import claim_all, make_job, start_one

PATIENCE = 30.0
LASTS = 0.6  # seconds of an outage, in which a loop tries more than once
SOON = 10.0  # 2 s are promised on a machine that has time
LISTENERS = "query ILIKE 'LISTEN%'"


@pytest.fixture(scope="module")
def server() -> Iterator[Breakable]:
    with breakable_server() as server:
        server.rule("local all ann scram-sha-256")
        asyncio.run(execute(server.url, "CREATE ROLE ann LOGIN PASSWORD 's3cret'"))
        yield server


@pytest_asyncio.fixture
async def url(server: Breakable) -> AsyncIterator[str]:
    """A database of its own with our schema, in which ann may do everything."""
    name = f"outage_{uuid4().hex[:12]}"
    await execute(server.url, f"CREATE DATABASE {name} OWNER ann")
    place = database_url(server.url, name)
    ann = as_user(place, "ann", "s3cret")
    await migrate(ann)
    yield ann
    await execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


def root(server: Breakable, url: str) -> str:
    return database_url(server.url, urlsplit(url).path[1:])


class Work:
    """An app with a task, and a worker that runs it for as long as the test lasts."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()

        @self.app.task(name="double")
        async def double(number: int) -> int:
            return 2 * number

        @self.app.task
        async def gated() -> str:
            self.entered.set()
            await self.gate.wait()
            return "through"

        self.double, self.gated = double, gated

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[asyncio.Task[None]]:
        config = WorkerConfig(
            **{"poll_interval": 0.5, "sweep_interval": 0.2, "lease": 30.0} | options
        )
        worker = self.app.worker(config)
        running = asyncio.create_task(worker.run())
        try:
            yield running
            assert not running.done(), "it stayed"
        finally:
            worker.stop()
            await asyncio.wait_for(running, PATIENCE)
            await self.app.aclose()

    async def does(self, number: int) -> None:
        """Enqueue, for as long as it takes, and have it done."""
        job: Job[int] | None = None
        async with asyncio.timeout(PATIENCE):
            while job is None:
                try:
                    job = await self.double.options(request_id=f"n{number}").aenqueue(number)
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)
            assert await self.result(job) == 2 * number

    async def result(self, job: Job[Any]) -> Any:
        """Of a job, whatever happens to the connection meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await job.aresult()
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)


async def logged(caplog: pytest.LogCaptureFixture, what: str) -> str:
    """Wait for a log message."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for line in caplog.messages:
                if what in line:
                    return line
            await asyncio.sleep(0.02)


def plain(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each thing that failed: no traceback, no repetition, no secret."""
    assert not [record for record in caplog.records if record.exc_info]
    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text
    failed = [line for line in caplog.messages if "failed" in line]
    assert len(failed) == len(set(failed)), failed


# -- the server goes, and comes back


@pytest.mark.slow
async def test_killed_backends_cost_no_job_and_no_attempt(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(url)
    async with work.working():
        held = await work.gated.aenqueue()
        await asyncio.wait_for(work.entered.wait(), PATIENCE)
        for number in range(3):
            assert await kill_all(root(server, url))
            await work.does(number)
        work.gate.set()
        assert await work.result(held) == "through"
    assert {(row.state, row.attempt) for row in await rows(url)} == {(State.SUCCEEDED, 1)}
    plain(caplog)


async def test_after_a_server_crash_work_continues(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(url)
    async with work.working():
        held = await work.gated.aenqueue()
        await asyncio.wait_for(work.entered.wait(), PATIENCE)
        waiting = [await work.double.options(delay=0.5).aenqueue(n) for n in range(3)]
        await server.actl("-m", "immediate", "stop")
        await logged(caplog, "Fetching jobs failed")
        work.gate.set()  # it ends while the server is down
        await logged(caplog, "Settling 1 jobs failed")
        await server.actl("start")
        back = asyncio.get_running_loop().time()
        await work.does(7)
        assert asyncio.get_running_loop().time() - back < SOON
        assert await work.result(held) == "through"
        assert [await work.result(job) for job in waiting] == [0, 2, 4]
        assert {row.attempt for row in await rows(url)} == {1}
    assert "Fetching jobs recovered" in caplog.text
    plain(caplog)


TASKS = """
from windlass import Windlass
app = Windlass()

@app.task(name="double")
async def double(number: int) -> int:
    return 2 * number
"""


@pytest.mark.slow
async def test_a_worker_process_survives_restarts_and_logs_little(
    server: Breakable, url: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    words = ["-m", "windlass", "worker", "tasks:app"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words,
        cwd=tmp_path, env=os.environ | {"WINDLASS_URL": url}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    work = Work(url)
    await work.does(1)
    for number in (2, 3):
        await server.actl("-m", "immediate", "restart")
        await work.does(number)
    await work.app.aclose()
    process.send_signal(signal.SIGTERM)
    _, output = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    assert b"Traceback" not in output
    assert b"s3cret" not in output
    lines = [re.sub(r"^\S+ \S+ ", "", line) for line in output.decode().splitlines()]
    assert len(lines) < 30, output.decode()


# -- LISTEN is lost


@pytest.mark.slow
async def test_a_frozen_listener_is_noticed_and_polling_bridges_the_time(
    server: Breakable, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.2)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 0.5)
    place = root(server, url)
    pids = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {LISTENERS}"
    work = Work(url)
    async with work.working():
        await work.does(0)
        frozen = {pid for [pid] in await execute(place, pids)}
        assert frozen
        try:
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            await work.does(1)  # without a wake-up: by polling

            async def reconnected() -> bool:
                return bool({pid for [pid] in await execute(place, pids)} - frozen)

            await until(reconnected)
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
async def test_when_only_listeners_are_killed_nothing_is_logged_and_work_continues(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(url)
    async with work.working():
        await work.does(0)
        for number in range(1, 4):
            await kill_all(root(server, url), LISTENERS)
            await work.does(number)
    assert caplog.messages == []


# -- the network


@pytest.mark.slow
async def test_a_network_that_swallows_everything_is_left_behind(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with network(server, urlsplit(url).path[1:]) as (between, through):
        work = Work(with_options(through, timeout=1, connect_timeout=1))
        async with work.working():
            await work.does(0)
            between.unresponsive = True
            line = await logged(caplog, "Fetching jobs failed")
            assert "did not respond in time" in line
            between.unresponsive = False
            await work.does(1)
    plain(caplog)


@pytest.mark.slow
async def test_a_silent_failover_costs_one_timeout_and_not_one_for_each_connection(
    server: Breakable, url: str
) -> None:
    async with (
        network(server, urlsplit(url).path[1:]) as (between, through),
        PostgresStore(through) as store,
    ):
        await asyncio.gather(*(store.ping() for _ in range(5)))
        idle: list[Any] = [*store._shared_engine._pool._idle]
        assert len(idle) == 5
        for connection in idle:  # those that will answer again have the usual time
            connection._config = connection._config._replace(command_timeout=1)
        between.fail_over()
        with pytest.raises(StoreUnavailableError, match="did not respond in time"):
            await store.ping()
        await store.ping()


@pytest.mark.slow
async def test_after_a_silent_failover_leases_and_claims_do_not_wait_for_the_usual_timeout(
    server: Breakable, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        network(server, urlsplit(url).path[1:]) as (between, through),
        PostgresStore(with_options(through, timeout=10 * PATIENCE)) as store,
    ):
        row = await start_one(store)
        async with asyncio.timeout(PATIENCE):
            between.fail_over()
            with pytest.raises(StoreUnavailableError, match="did not respond in time"):
                await store.extend([row.lease], 6.0)
            # With a longer lease, the one that is answered has more time.
            assert not (await store.extend([row.lease], 10 * PATIENCE))[0].stale
            between.fail_over()
            with monkeypatch.context() as patch:
                patch.setattr(store_module, "CLAIM_TIMEOUT", 0.5)
                with pytest.raises(StoreUnavailableError, match="did not respond in time"):
                    await claim_all(store)
            assert await claim_all(store) == []


async def test_the_kernel_watches_connections_that_say_nothing(server: Breakable, url: str) -> None:
    async with network(server, urlsplit(url).path[1:]) as (_, through):
        connection: Any = await connect(PostgresConfig(url=through))
        borrowed = connection._transport.get_extra_info("socket")
        assert [
            borrowed.getsockopt(level, getattr(socket, name)) for level, name, _ in SOCKET_OPTIONS
        ] == [value for _, _, value in SOCKET_OPTIONS]
        await connection.close()


@pytest.mark.slow
async def test_commits_with_lost_responses_are_repeated_and_count_once(
    server: Breakable, url: str
) -> None:
    jobs = [make_job(task="double", payload=b'{"number":1}') for _ in range(20)]

    async def ended() -> bool:
        return all(row.state is State.SUCCEEDED for row in await rows(url))

    async with network(server, urlsplit(url).path[1:]) as (between, through):
        work = Work(through)
        async with work.working(poll_interval=0.05), PostgresStore(through) as producer:
            between.loses = 0.1
            async with asyncio.timeout(PATIENCE):
                for job in jobs:
                    await insist(producer, job)
            await until(ended)
            between.loses = 0
    assert between.lost > 5
    found = await rows(url)
    assert len(found) == len(jobs)
    assert {(row.attempt, row.crash_count, row.retry_count) for row in found} == {(1, 0, 0)}


async def insist(store: PostgresStore, job: NewJob) -> None:
    while True:
        with contextlib.suppress(StoreUnavailableError):
            [answer] = await store.enqueue([job])
            assert answer.row is not None
            assert answer.row.id == job.id
            return


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask the server again and again."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - polls the server
            await asyncio.sleep(0.05)


async def rows(url: str) -> list[JobRow]:
    async with PostgresStore(url) as store:
        return list((await store.find(Query())).rows)


# -- changed settings


BREAKS = {
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
@pytest.mark.parametrize("kind", BREAKS)
async def test_a_worker_logs_the_problem_and_continues_when_it_is_fixed(
    server: Breakable, url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = urlsplit(url).path[1:]
    breaks, fixes, message = (text.format(name=name) for text in BREAKS[kind])
    work = Work(url)
    async with work.working():
        await work.does(0)
        await execute(server.url, breaks)
        try:
            others = (
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            await execute(server.url, others)
            line = await logged(caplog, message)
            assert "postgresql://ann@" in line
            await asyncio.sleep(LASTS)
        finally:
            await execute(server.url, fixes)
        await work.does(1)
    plain(caplog)


async def test_a_read_only_connection_is_not_kept(server: Breakable, url: str) -> None:
    breaks, fixes, message = (
        text.format(name=urlsplit(url).path[1:]) for text in BREAKS["read-only"]
    )
    await execute(server.url, breaks)
    async with PostgresStore(with_options(url, pool=1)) as store:
        with pytest.raises(StoreUnavailableError, match=message):
            await store.enqueue([make_job()])
        await execute(server.url, fixes)
        await store.enqueue([make_job()])


@pytest.mark.slow
async def test_a_dropped_database_may_be_created_again(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = urlsplit(url).path[1:]
    work = Work(url)
    async with work.working():
        await work.does(0)
        await execute(server.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        others = (
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
        )
        await execute(server.url, others)
        await execute(server.url, f"ALTER DATABASE {name} RENAME TO {name}_away")
        assert "createdb" in await logged(caplog, "has no such database")
        await execute(server.url, f"ALTER DATABASE {name}_away RENAME TO {name}")
        await execute(server.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await work.does(1)
    plain(caplog)


INSIDE = {
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
@pytest.mark.parametrize("kind", INSIDE)
async def test_a_worker_logs_missing_privileges_or_tables_and_continues(
    server: Breakable, url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    breaks, fixes, message = INSIDE[kind]
    place = root(server, url)
    work = Work(url)
    async with work.working():
        await work.does(0)
        await execute(place, breaks)
        await logged(caplog, message)
        await execute(place, fixes)
        await work.does(1)
    plain(caplog)


async def test_a_worker_waits_for_a_schema_that_is_still_to_be_made(
    server: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"outage_{uuid4().hex[:12]}"
    await execute(server.url, f"CREATE DATABASE {name} OWNER ann")
    place = as_user(database_url(server.url, name), "ann", "s3cret")
    work = Work(place)
    async with work.working():
        await logged(caplog, "no Windlass schema: run windlass migrate")
        await migrate(place)
        await work.does(1)
    plain(caplog)
    await execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.slow
async def test_a_worker_on_a_standby_works_as_soon_as_that_is_promoted(
    server: Breakable, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(url)
    job = await work.double.aenqueue(21)
    await work.app.aclose()
    with server.standby() as (place, promote):
        work = Work(database_url(place, urlsplit(url).path[1:]))
        async with work.working():
            await logged(caplog, "is read-only")
            await asyncio.to_thread(promote)
            assert await work.result(await work.app.ajob(job.id)) == 42
            await work.does(1)
    plain(caplog)


# -- the command line


OTHERS = ("connections", "closed")


@pytest.mark.parametrize("words", [["jobs", "list"], ["queues", "pause", "media"], ["migrate"]])
@pytest.mark.parametrize(
    "kind", ["password", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)]
)
def test_commands_print_one_line_and_exit_with_the_code_of_an_unreachable_store(
    server: Breakable, url: str, kind: str, words: list[str]
) -> None:
    breaks, fixes, message = (text.format(name=urlsplit(url).path[1:]) for text in BREAKS[kind])
    asyncio.run(execute(server.url, breaks))
    try:
        answer = CliRunner().invoke(cli, [*words, "--url", url])
    finally:
        asyncio.run(execute(server.url, fixes))
    assert answer.exit_code == 3
    assert message in answer.stderr
    assert answer.stderr.startswith("error: postgresql://ann@")
    assert answer.stderr.count("\n") == 1
    assert "s3cret" not in answer.output


def test_what_only_reads_works_on_a_server_that_takes_no_writes(
    server: Breakable, url: str
) -> None:
    breaks, fixes, message = (
        text.format(name=urlsplit(url).path[1:]) for text in BREAKS["read-only"]
    )
    asyncio.run(execute(server.url, breaks))
    try:
        assert CliRunner().invoke(cli, ["jobs", "list", "--url", url]).exit_code == 0
        refused = CliRunner().invoke(cli, ["queues", "pause", "media", "--url", url])
        assert refused.exit_code == 3
        assert message in refused.stderr
    finally:
        asyncio.run(execute(server.url, fixes))
