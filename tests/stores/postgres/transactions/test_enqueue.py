"""`app.within(connection)`: jobs commit or roll back with the transaction of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from tests.stores.postgres.server import execute, migrate

from windlass import ConfigurationError, ConflictError, SchemaError, Windlass
from windlass.core.job.state import State
from windlass.job import Job
from windlass.task import Task

INSERT = "INSERT INTO orders VALUES ('{}')"


def _dialect(url: str, driver: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(url).set(drivername=f"postgresql+{driver}")


# Each opens a connection and a transaction, and yields the object for `within` and a function that
# inserts an order. The transaction commits, or an exception rolls it back.


@contextmanager
def _psycopg(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with psycopg.connect(url) as connection:
        yield connection, lambda order: connection.execute(INSERT.format(order).encode())


@contextmanager
def _session(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session, lambda order: session.execute(sqlalchemy.text(INSERT.format(order)))


@contextmanager
def _connection(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sqlalchemy.create_engine(_dialect(url, "psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection, lambda order: connection.execute(sqlalchemy.text(INSERT.format(order)))


@contextmanager
def _django(url: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    connection = _django_connection(url)
    try:
        with django_transaction.atomic():
            yield connection, lambda order: connection.cursor().execute(INSERT.format(order))
    finally:
        connection.close()


def _django_connection(url: str) -> Any:
    from django.db import connection  # noqa: PLC0415 - it needs the settings

    parts = psycopg.conninfo.conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "PASSWORD": parts.get("password", ""),
        "HOST": parts["host"],
        "PORT": str(parts.get("port", "")),
    }
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": database})
        django.setup()
    django_connections["default"].settings_dict.update(database)
    return connection


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection, lambda order: connection.execute(INSERT.format(order))


@asynccontextmanager
async def _async_psycopg(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, lambda order: connection.execute(INSERT.format(order).encode())


@asynccontextmanager
async def _async_session(
    url: str, driver: str = "asyncpg"
) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    engine = create_async_engine(_dialect(url, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session, lambda order: session.execute(sqlalchemy.text(INSERT.format(order)))


@asynccontextmanager
async def _async_session_of_psycopg(
    url: str,
) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    async with _async_session(url, "psycopg") as given:
        yield given


@asynccontextmanager
async def _async_connection(url: str) -> AsyncIterator[tuple[Any, Callable[[str], Awaitable[Any]]]]:
    engine = create_async_engine(_dialect(url, "asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection, lambda order: connection.execute(sqlalchemy.text(INSERT.format(order)))


SYNC = [_psycopg, _session, _connection, _django]
ASYNC = [
    _asyncpg, _async_psycopg, _async_session, _async_session_of_psycopg, _async_connection
]  # fmt: skip


class BoomError(Exception):
    pass


@pytest.fixture
def app(postgres_url: str) -> Iterator[Windlass]:
    asyncio.run(
        execute(postgres_url, "DROP TABLE IF EXISTS orders;CREATE TABLE orders (what text)")
    )
    opened_app = Windlass(postgres_url)
    yield opened_app
    opened_app.close()
    asyncio.run(execute(postgres_url, "DROP TABLE orders;"))


@pytest.fixture
def ship(app: Windlass) -> Task[[str], None]:
    @app.task
    def ship(order: str) -> None: ...

    return ship


async def _stored(url: str) -> tuple[list[str], list[str]]:
    """Return the orders, and the states of the jobs."""
    orders = await execute(url, "SELECT what FROM orders ORDER BY 1")
    jobs = await execute(url, "SELECT state FROM windlass_job ORDER BY n")
    return [row[0] for row in orders], [row[0] for row in jobs]


@pytest.mark.parametrize("opened", SYNC)
def test_sync_a_commit_stores_the_job_once_and_a_rollback_never(
    app: Windlass, ship: Task[[str], None], postgres_url: str, opened: Any
) -> None:
    with opened(postgres_url) as (connection, insert):
        insert("a rope")
        with app.within(connection):
            job = ship.enqueue("a rope")
            again = ship.options(id=job.id).enqueue("a rope")
        assert asyncio.run(_stored(postgres_url)) == ([], [])
    assert asyncio.run(_stored(postgres_url)) == (["a rope"], ["queued"])
    assert again.id == job.id
    assert job.state is job.refresh().state is State.QUEUED

    def fail() -> None:
        with opened(postgres_url) as (connection, insert):
            insert("an anchor")
            with app.within(connection):
                app.enqueue_many([ship.new_job("an anchor"), ship.new_job("a chain")])
            raise BoomError

    with pytest.raises(BoomError):
        fail()
    assert asyncio.run(_stored(postgres_url)) == (["a rope"], ["queued"])


@pytest.mark.parametrize("opened", ASYNC)
async def test_async_a_commit_stores_the_job_once_and_a_rollback_never(
    app: Windlass, ship: Task[[str], None], postgres_url: str, opened: Any
) -> None:
    async with opened(postgres_url) as (connection, insert):
        await insert("a rope")
        with app.within(connection):
            job = await ship.aenqueue("a rope")
            again = await ship.options(id=job.id).aenqueue("a rope")
        assert await _stored(postgres_url) == ([], [])
    assert await _stored(postgres_url) == (["a rope"], ["queued"])
    assert again.id == job.id
    assert job.state is (await job.arefresh()).state is State.QUEUED

    async def fail() -> None:
        async with opened(postgres_url) as (connection, insert):
            await insert("an anchor")
            with app.within(connection):
                await app.aenqueue_many([ship.new_job("an anchor"), ship.new_job("a chain")])
            raise BoomError

    with pytest.raises(BoomError):
        await fail()
    assert await _stored(postgres_url) == (["a rope"], ["queued"])


@pytest.mark.parametrize("opened", SYNC)
def test_results_equal_those_of_a_plain_enqueue(
    app: Windlass, ship: Task[[str], None], postgres_url: str, opened: Any
) -> None:
    before = ship.options(request_id="r", unique_key="k", tags=("x",)).enqueue("a rope")
    with opened(postgres_url) as (connection, _), app.within(connection):
        same: Job[None] = ship.options(request_id="r").enqueue("a rope")
        other: Job[None] = ship.options(unique_key="k").enqueue("a sail")
        with pytest.raises(ConflictError, match="with different arguments"):
            ship.options(request_id="r").enqueue("a sail")
        with pytest.raises(ValueError, match="queue has 200 characters"):
            ship.options(queue="q" * 200).enqueue("a rope")
        newer = ship.options(unique_key="k", debounce=True).enqueue("a sail")
    assert same.id == other.id == before.id != newer.id
    assert same.duplicate
    assert (same.row.tags, same.state) == (("x",), State.QUEUED)
    assert before.refresh().state is State.CANCELED
    assert newer.refresh().state is State.QUEUED


@pytest.mark.parametrize("opened", SYNC)
def test_bytes_are_read_with_any_bytea_output(
    app: Windlass, ship: Task[[str], None], postgres_url: str, opened: Any
) -> None:
    payload = ship.options(request_id="r").enqueue("añ\\x00").row.payload
    with opened(postgres_url) as (connection, _), app.within(connection):
        escape = "SET LOCAL bytea_output = 'escape'"
        if isinstance(connection, (sqlalchemy.Connection, Session)):
            connection.execute(sqlalchemy.text(escape))
        else:
            connection.cursor().execute(escape)
        same = ship.options(request_id="r").enqueue("añ\\x00")
    assert same.duplicate
    assert same.row.payload == payload


# -- errors


async def test_without_a_transaction_nothing_is_enqueued(
    app: Windlass, ship: Task[[str], None], postgres_url: str
) -> None:
    without_transaction = await asyncpg.connect(postgres_url)
    with (
        pytest.raises(ConfigurationError, match="no transaction is open"),
        app.within(without_transaction),
    ):
        await ship.aenqueue("a rope")
    await without_transaction.close()

    def in_sync_code() -> None:
        url = _dialect(postgres_url, "psycopg")
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with (
            psycopg.connect(postgres_url, autocommit=True) as plain,
            engine.connect() as automatic,
        ):
            django_connection = _django_connection(postgres_url)
            for connection in (plain, automatic, django_connection):
                with (
                    pytest.raises(ConfigurationError, match="no transaction is open"),
                    app.within(connection),
                ):
                    ship.enqueue("a rope")
            with plain.transaction(), app.within(plain):
                ship.enqueue("a sail")
            django_connection.close()

    await asyncio.to_thread(in_sync_code)
    assert await _stored(postgres_url) == ([], ["queued"])


async def test_a_call_of_the_wrong_kind_names_the_right_one(
    app: Windlass, ship: Task[[str], None], postgres_url: str
) -> None:
    async with _asyncpg(postgres_url) as (connection, _), _async_session(postgres_url) as (both, _):
        for wrong in (connection, both):
            with (
                pytest.raises(ConfigurationError, match=r"await task\.aenqueue"),
                app.within(wrong),
            ):
                ship.enqueue("a rope")
    django_connection = _django_connection(postgres_url)
    with pytest.raises(ConfigurationError, match="sync_to_async"), app.within(django_connection):
        await ship.aenqueue("a rope")
    with psycopg.connect(postgres_url) as blocking, app.within(blocking):
        await ship.aenqueue("a rope")  # works, and blocks for the statement
    assert await _stored(postgres_url) == ([], ["queued"])


def test_an_unsupported_connection_is_refused(app: Windlass) -> None:
    with (
        pytest.raises(ConfigurationError, match="asyncpg, psycopg 3, SQLAlchemy 2 and Django"),
        app.within(object()),
    ):
        pass


async def test_a_connection_to_another_database_is_refused(
    app: Windlass, ship: Task[[str], None], new_database: str
) -> None:
    connection = await asyncpg.connect(new_database)

    async def enqueue() -> None:
        async with connection.transaction():
            with app.within(connection):
                await ship.aenqueue("a rope")

    with pytest.raises(SchemaError, match="no Windlass schema found"):
        await enqueue()
    await migrate(new_database)
    with pytest.raises(ConfigurationError, match="another database than the store"):
        await enqueue()
    await connection.close()


def test_a_library_connected_to_another_vendor_is_refused(
    app: Windlass, ship: Task[[str], None]
) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with (
        Session(engine) as session,
        pytest.raises(ConfigurationError, match="is to sqlite"),
        app.within(session),
    ):
        ship.enqueue("a rope")


def test_an_app_on_another_store_names_the_alternative(tmp_path: Any) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
    with pytest.raises(ConfigurationError, match=r"app\.transaction\(\)"), app.within(object()):
        pass
    app.close()


def test_a_postgres_app_has_no_transaction_of_its_own(app: Windlass) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"app\.within\(connection\)"),
        app.transaction(),
    ):
        pass


async def test_a_background_task_cannot_use_an_ended_block(
    app: Windlass, ship: Task[[str], None], postgres_url: str
) -> None:
    block_ended = asyncio.Event()

    async def late() -> None:
        await block_ended.wait()
        await ship.aenqueue("a rope")

    async with _asyncpg(postgres_url) as (connection, _):
        with app.within(connection):
            started = asyncio.create_task(late())
            await asyncio.sleep(0)
        block_ended.set()
        with pytest.raises(ConflictError, match="has ended"):
            await started
    assert await _stored(postgres_url) == ([], [])
