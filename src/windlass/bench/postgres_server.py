"""PostgreSQL server to compare on; each round has its own database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from windlass.bench.adapters.queue_adapter import EACH_COMMIT
from windlass.bench.database_server import DatabaseServer
from windlass.bench.measured_process import BenchError
from windlass.core.errors import StoreUnavailableError

SETTINGS = ("fsync", "synchronous_commit")
NOT_SYNCED = "not at commits"


class PostgresServer(DatabaseServer):
    """The URL's user needs CREATEDB. `pid` is the server's process if the bench started it."""

    def __init__(self, url: str, pid: int | None = None) -> None:
        self._url = url
        self.pid = pid
        try:
            version = self._query("SHOW server_version").split()[0]
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            where = urlsplit(url).hostname or "the URL's socket"
            raise StoreUnavailableError(
                f"cannot reach a PostgreSQL server at {where}: {error}"
            ) from None
        settings = {name: self._query(f"SHOW {name}") for name in SETTINGS}
        shown = ", ".join(f"{name}={value}" for name, value in settings.items())
        self.durability = f"PostgreSQL {version}, {shown}"
        self.synced = NOT_SYNCED if "off" in settings.values() else EACH_COMMIT

    @contextlib.contextmanager
    def new_database(self) -> Iterator[str]:
        name = f"windlass_bench_{uuid4().hex[:12]}"
        try:
            self._query(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError:
            raise BenchError(
                "the URL's user may not create databases, and each round needs one; run "
                "ALTER ROLE … CREATEDB"
            ) from None
        try:
            yield urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))
        finally:
            self._query(f"DROP DATABASE {name} WITH (FORCE)")

    def quiesce(self, url: str) -> None:
        """Run ANALYZE, as autovacuum would within a minute, and a checkpoint."""
        self._query("ANALYZE", url)
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # not a superuser
            self._query("CHECKPOINT", url)

    def _query(self, sql: str, url: str | None = None) -> str:
        async def query() -> Any:
            connection = await asyncpg.connect(url or self._url)
            try:
                return await connection.fetchval(sql)
            finally:
                await connection.close()

        return str(asyncio.run(query()))
