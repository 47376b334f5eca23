"""The store behind pgbouncer in transaction mode: each call may use another server connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.stores.postgres.pgbouncer import installed, pgbouncer
from tests.stores.postgres.server import CLEAN, execute
from tests.stores.postgres.unstable_server import with_options
from typer.testing import CliRunner

from windlass import Context, Job, Windlass, WorkerConfig
from windlass.cli import cli
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.stores.postgres import PostgresConfig, PostgresStore, notify
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.claim import TestClaim
from windlass.testing.conformance.attempts.settle_many import TestSettleMany
from windlass.testing.conformance.attempts.settle_records import TestSettleRecords
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.jobs.retention import TestRetention
from windlass.testing.factories import claim_all, enqueue_one

__all__ = [
    "TestClaim",
    "TestRetention",
    "TestSettleMany",
    "TestSettleRecords",
    "clock",
    "store",
]

SAMPLE = ()  # `make test-all` runs these
WAIT_TIMEOUT = 30.0


@pytest.fixture(scope="module")
def bouncer_url(postgres_database: str) -> Iterator[str]:
    """URL of the test database through a pooler, without store options."""
    with pgbouncer(postgres_database) as place:
        parts = urlsplit(postgres_database)
        yield f"postgresql://{parts.username}@{place}{parts.path}?sslmode=disable"


@pytest.fixture
def pooled(bouncer_url: str, postgres_database: str) -> str:
    """URL through the pooler with the required option; the database has no jobs."""
    asyncio.run(execute(postgres_database, CLEAN))
    return with_options(bouncer_url, statement_cache_size=0)


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str, request: pytest.FixtureRequest) -> OpenStore:
    """Through pgbouncer if installed, otherwise without prepared statements and settings."""
    bare = with_options(postgres_url, statement_cache_size=0)
    url: str = request.getfixturevalue("pooled") if installed() else bare

    async def open_handle() -> Store:
        return PostgresStore(url, clock=clock)

    return open_handle


class ProducerAndWorker:
    """A producer and a worker on the same URL, with separate connections."""

    def __init__(self, url: str) -> None:
        self.producer, self.app = Windlass(url), Windlass(url)

        async def double(ctx: Context, number: int) -> int:
            ctx.progress(50, "half way")
            if number == 13 and ctx.attempt == 1:
                raise ValueError("unlucky")
            return await ctx.astep("double", lambda: _double(number))

        self.app.task(name="double")(double)
        self.double = self.producer.task(name="double")(double)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        worker = self.app.worker(WorkerConfig(poll_interval=0.3, sweep_interval=0.2))
        running = asyncio.create_task(worker.run())
        try:
            yield
            assert not running.done()
        finally:
            worker.stop()
            await asyncio.wait_for(running, WAIT_TIMEOUT)
            await self.producer.aclose()
            await self.app.aclose()


async def _double(number: int) -> int:
    return 2 * number


async def test_a_producer_and_a_worker_work_through_the_pooler(pooled: str) -> None:
    apps = ProducerAndWorker(pooled)
    async with apps.open(), asyncio.timeout(WAIT_TIMEOUT):
        numbers = [*range(30), 13]
        jobs: list[Job[int]] = await asyncio.gather(*map(apps.double.aenqueue, numbers))
        assert [await job.aresult() for job in jobs] == [2 * number for number in numbers]
        again = [await apps.double.options(request_id="once").aenqueue(1) for _ in range(2)]
        assert again[0].id == again[1].id
        late = await apps.double.options(delay=0.2).aenqueue(5)
        assert [event.seq async for event in late.aevents()][-1] >= 4
        canceled = await apps.double.options(delay=60).aenqueue(6)
        await canceled.acancel()
    async with PostgresStore(pooled) as store:
        rows = (await store.find(JobQuery(limit=100))).rows
    states = [row.state for row in rows]
    assert states.count(State.SUCCEEDED) == len(numbers) + 2
    assert states.count(State.CANCELED) == 1
    assert sum(row.attempt - 1 for row in rows if row.state is State.SUCCEEDED) == 2, (
        "only the job 13 fails once"
    )


async def test_without_the_option_the_error_names_it(bouncer_url: str) -> None:
    async with PostgresStore(bouncer_url) as store:
        with pytest.raises(StoreUnavailableError, match="statement_cache_size=0 in the URL"):
            await store.ping()


async def test_missing_notifications_only_cost_a_poll(
    pooled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LISTEN applies to one connection of the pooler; the probes detect that no message arrives."""
    monkeypatch.setattr(notify, "PROBE_INTERVAL", 0.2)
    monkeypatch.setattr(notify, "PROBE_TIMEOUT", 0.3)
    apps = ProducerAndWorker(pooled)
    async with apps.open(), asyncio.timeout(WAIT_TIMEOUT):
        for number in range(5):
            job = await apps.double.aenqueue(number)
            assert await job.aresult() == 2 * number
        while not caplog.messages:  # noqa: ASYNC110 - waits for the warning
            await asyncio.sleep(0.05)
    assert "set listen=host:port of the server" in caplog.messages[0]


async def test_with_a_direct_listen_address_wakeups_arrive_at_once(
    pooled: str, postgres_database: str
) -> None:
    parts = urlsplit(postgres_database)
    direct = parts.netloc.rpartition("@")[2] or parse_qs(parts.query)["host"][0]
    url = with_options(pooled, listen=direct)
    async with PostgresStore(url) as store, PostgresStore(pooled) as other:
        await claim_all(store)
        await store.wait(["default"], 0.01)
        assert store._writer._listener is not None
        await store._writer._listener.ready.wait()
        await enqueue_one(other)
        async with asyncio.timeout(WAIT_TIMEOUT):
            assert await store.wait(["default"], 2 * WAIT_TIMEOUT)


async def test_with_listen_off_waits_are_polls(pooled: str) -> None:
    async with PostgresStore(with_options(pooled, listen="off")) as store:
        await claim_all(store)
        assert await store.wait(["default"], 0.05) is False
        assert store._writer._listener is None
        job = await enqueue_one(store)
        assert await store.wait(["default"], WAIT_TIMEOUT), (
            "writes of the same process need no notification"
        )
        assert [row.id for row in await claim_all(store)] == [job.id]


def test_the_listen_connection_keeps_user_database_and_options() -> None:
    url = "postgresql://ann:s3cret@pool:6432/jobs?sslmode=require&statement_cache_size=0&listen="
    direct = PostgresConfig.of(url + "db:5432").listening
    assert direct is not None
    assert direct.url == "postgresql://ann:s3cret@db:5432/jobs?sslmode=require"
    assert direct.statement_cache_size > 0
    local = PostgresConfig.of(url + "/var/run/postgresql").listening
    assert local is not None
    assert local.url == (
        "postgresql://ann:s3cret@/jobs?sslmode=require&host=%2Fvar%2Frun%2Fpostgresql"
    )
    assert PostgresConfig.of(url + "off").listening is None


def test_the_checkup_detects_the_pooler(pooled: str) -> None:
    run = CliRunner().invoke
    answer = run(cli, ["check", "--url", pooled])
    assert answer.exit_code == 0, answer.output
    assert "! pooler" in answer.output
    assert "listen=host:port" in answer.output
    assert "✓ pooler" in run(cli, ["check", "--url", with_options(pooled, listen="off")]).output
