"""Errors of a server: clear messages with a fix, and recovery once it is fixed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from tests.stores.postgres.server import database_url, execute, migrate
from tests.worker.event_waits import eventually

from windlass.core.errors import InvalidArgumentError, SchemaError, StoreUnavailableError
from windlass.stores import open_store, public_url
from windlass.stores.postgres import PostgresConfig, PostgresStore
from windlass.testing.factories import claim_all, enqueue_one, make_job


@asynccontextmanager
async def refusing_server(code: str, message: str) -> AsyncIterator[str]:
    """The URL of a fake server that refuses every connection."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length - 4)
        fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://ann:s3cret@127.0.0.1:{port}/jobs?sslmode=disable"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("28P01", "refused the user or the password"),
        ("28000", "refused the user or the password"),
        ("53300", "has no free connections"),
        ("57P03", "is starting or stopping"),
        ("42501", "grant what is missing"),
    ],
)
async def test_a_refused_connection_names_the_reason_and_the_fix(code: str, message: str) -> None:
    async with refusing_server(code, "no entry") as url, PostgresStore(url) as store:
        with pytest.raises(StoreUnavailableError) as raised:
            await store.enqueue([make_job()])

    assert message in str(raised.value)
    assert "postgresql://ann@127.0.0.1" in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/jobs", "postgresql:///jobs?host=/none"])
async def test_a_missing_server_is_unavailable(url: str) -> None:
    async with PostgresStore(url) as store:
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await claim_all(store)


async def test_a_missing_database_is_named(postgres_server: str) -> None:
    async with PostgresStore(database_url(postgres_server, "windlass_nowhere")) as store:
        with pytest.raises(StoreUnavailableError, match=r"no such database.*createdb"):
            await store.ping()


@pytest.mark.parametrize(
    "option", ["pool=many", "migrate=perhaps", "timeout=soon", "pool=0", "timeout=nan"]
)
def test_an_invalid_option_is_refused(option: str) -> None:
    with pytest.raises(InvalidArgumentError, match=option) as raised:
        open_store(f"postgresql://ann:s3cret@host/jobs?{option}")

    assert "s3cret" not in str(raised.value)


# -- schema, read-only database, privileges


async def test_without_a_schema_calls_fail_until_it_is_created(new_database: str) -> None:
    async with PostgresStore(new_database) as store:
        with pytest.raises(SchemaError, match="no Windlass schema: run windlass migrate"):
            await store.enqueue([make_job()])
        assert await execute(new_database, "SELECT FROM pg_class WHERE relname ~ 'windlass'") == []

        await migrate(new_database)

        await enqueue_one(store)


async def test_with_migrate_true_the_schema_is_created_automatically(new_database: str) -> None:
    mark = "&" if "?" in new_database else "?"
    async with open_store(f"{new_database}{mark}migrate=true") as store:
        await enqueue_one(store)


async def test_a_newer_incompatible_schema_is_refused(new_database: str) -> None:
    await migrate(new_database)
    newer = "INSERT INTO windlass_schema VALUES (999, 'later', 'x', {}, 0)"
    await execute(new_database, newer.format(0))
    async with PostgresStore(new_database) as store:
        await enqueue_one(store)  # a compatible newer schema is used
    await execute(new_database, "UPDATE windlass_schema SET breaking = 1 WHERE version = 999")

    async with PostgresStore(new_database) as store:
        with pytest.raises(SchemaError, match="upgrade Windlass"):
            await store.enqueue([make_job()])


async def test_a_read_only_server_is_unavailable_until_it_accepts_writes(
    new_database: str,
) -> None:
    await migrate(new_database)
    name = urlsplit(new_database).path[1:]
    read_only = f"ALTER DATABASE {name} SET default_transaction_read_only = "
    await execute(new_database, read_only + "on")
    async with PostgresStore(new_database) as store:
        with pytest.raises(StoreUnavailableError, match="is read-only"):
            await store.enqueue([make_job()])
        assert await store.insights.stats() == {}
    await execute(new_database, f"BEGIN READ WRITE; {read_only}off; COMMIT")

    async with PostgresStore(new_database) as store:
        await enqueue_one(store)


async def test_a_missing_privilege_is_reported(new_database: str) -> None:
    await migrate(new_database)
    role = f"windlass_test_{uuid4().hex[:12]}"
    await execute(new_database, f"CREATE ROLE {role} LOGIN")
    parts = urlsplit(new_database)
    url = urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))
    try:
        async with PostgresStore(url) as store:
            with pytest.raises(StoreUnavailableError, match="grant what is missing"):
                await store.enqueue([make_job()])
    finally:
        await execute(new_database, f"DROP ROLE {role}")


# -- lost connections, timeouts


async def test_killed_connections_are_replaced(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        for _ in range(3):
            await asyncio.gather(*(store.insights.stats() for _ in range(5)))
            await execute(
                postgres_url,
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE application_name = 'windlass' AND datname = current_database()",
            )
            try:
                await enqueue_one(store)
            except StoreUnavailableError:  # noticed only now: the next call succeeds
                await enqueue_one(store)


async def test_closing_during_a_claim_leaves_no_connection_behind(postgres_url: str) -> None:
    others = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'windlass' "
        "AND datname = current_database()"
    )
    store = PostgresStore(postgres_url)
    await store.enqueue([make_job()])
    claiming = asyncio.ensure_future(claim_all(store))
    await asyncio.sleep(0)
    await store.close()
    assert len(await claiming) == 1, "close waits for running calls"
    await asyncio.sleep(0.2)  # a late notification would connect meanwhile

    async def is_closed() -> bool:
        return not await execute(postgres_url, others)

    await eventually(is_closed)


@contextmanager
def short_timeout(store: PostgresStore, seconds: float) -> Iterator[None]:
    """Shorten the timeout of statements and of waits for a connection."""
    pool = store._shared_engine._pool
    usual = pool._config
    pool._drop_idle()  # they have the usual timeout
    pool._config = replace(usual, timeout=seconds)
    try:
        yield
    finally:
        pool._config = usual


async def test_a_statement_that_waits_too_long_times_out_and_the_store_remains_usable(
    postgres_url: str,
) -> None:
    connection: Any = await asyncpg.connect(postgres_url)
    async with PostgresStore(postgres_url) as store:
        await store.ping()
        async with connection.transaction():
            await connection.execute("LOCK TABLE windlass_queued")
            with (
                short_timeout(store, 0.3),
                pytest.raises(StoreUnavailableError, match="did not respond in time"),
            ):
                await store.enqueue([make_job()])

        await enqueue_one(store)
    await connection.close()


async def test_a_busy_pool_times_out_with_an_error(postgres_url: str) -> None:
    config = replace(PostgresConfig.of(postgres_url), pool=1)
    async with PostgresStore(config) as store:
        await store.ping()
        async with store._shared_engine._pool.connection():
            with (
                short_timeout(store, 0.1),
                pytest.raises(StoreUnavailableError, match=r"all 1 connections .* were busy"),
            ):
                await store.ping()

        await store.ping()


# -- secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@host:5432/jobs", "postgresql://ann:***@host:5432/jobs"),
        ("postgresql://ann@host/jobs?pool=3", "postgresql://ann@host/jobs?pool=3"),
        (
            "postgresql:///jobs?user=ann&password=s3cret&host=/tmp",
            "postgresql:///jobs?user=ann&password=***&host=/tmp",
        ),
        ("postgresql://ann:s3/c#r?e@t@host/jobs", "postgresql://ann:***@host/jobs"),
        ("postgresql://host:5432/jobs", "postgresql://host:5432/jobs"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("memory:", "memory:"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert public_url(url) == shown
