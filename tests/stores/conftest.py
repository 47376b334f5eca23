"""PostgreSQL server for tests: a private one, or that of WINDLASS_TEST_POSTGRES_URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio
from tests.stores.postgres.server import CLEAN, database_url, execute, migrate, shared_server


@pytest.fixture(scope="session")
def postgres_server() -> str:
    return shared_server()


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """URL of a new database with the schema, without synchronous commits."""
    name = f"windlass_test_{uuid4().hex[:12]}"
    url = database_url(postgres_server, name)
    asyncio.run(execute(postgres_server, f"CREATE DATABASE {name}"))
    asyncio.run(execute(url, f"ALTER DATABASE {name} SET synchronous_commit = off"))
    asyncio.run(migrate(url))
    yield url
    asyncio.run(execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest_asyncio.fixture
async def new_database(postgres_server: str) -> AsyncIterator[str]:
    """URL of a new database without a schema."""
    name = f"windlass_test_{uuid4().hex[:12]}"
    await execute(postgres_server, f"CREATE DATABASE {name}")
    yield database_url(postgres_server, name)
    await execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def clean_database(postgres_database: str) -> Iterator[Callable[[], None]]:
    """Delete all jobs. Reuses one connection: opening one costs as much as the deletes."""
    connection: psycopg.Connection | None = None

    def clean() -> None:
        nonlocal connection
        if connection is None or connection.closed:
            connection = psycopg.connect(postgres_database, autocommit=True)
        connection.execute(CLEAN)

    yield clean
    if connection is not None:
        connection.close()


@pytest.fixture
def postgres_url(postgres_database: str, clean_database: Callable[[], None]) -> str:
    """URL of the test database, without jobs."""
    clean_database()
    return postgres_database
