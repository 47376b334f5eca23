"""A PostgreSQL server to measure on: each round gets a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from windlass.bench.measured_process import BenchError
from windlass.bench.server import Server
from windlass.bench.side import EACH_COMMIT
from windlass.core.errors import StoreUnavailableError

SETTINGS = ("fsync", "synchronous_commit")
NOT_SYNCED = "not at commits"


class Postgres(Server):
    """The URL's user must be allowed to make databases. `pid` is the server's, if it is ours."""

    def __init__(self, url: str, pid: int | None = None) -> None:
        self._url = url
        self.pid = pid
        try:
            version = self._ask("SHOW server_version").split()[0]
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            where = urlsplit(url).hostname or "the URL's socket"
            raise StoreUnavailableError(
                f"no PostgreSQL server answers at {where}: {error}"
            ) from None
        found = {name: self._ask(f"SHOW {name}") for name in SETTINGS}
        shown = ", ".join(f"{name}={value}" for name, value in found.items())
        self.durability = f"PostgreSQL {version}, {shown}"
        self.synced = NOT_SYNCED if "off" in found.values() else EACH_COMMIT

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        name = f"windlass_bench_{uuid4().hex[:12]}"
        try:
            self._ask(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError:
            raise BenchError(
                "the URL's user may not make databases, of which each round needs one: "
                "ALTER ROLE … CREATEDB"
            ) from None
        try:
            yield urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))
        finally:
            self._ask(f"DROP DATABASE {name} WITH (FORCE)")

    def rest(self, url: str) -> None:
        """Statistics, as autovacuum would make them within a minute; and nothing left to write."""
        self._ask("ANALYZE", url)
        with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # the server may not be ours
            self._ask("CHECKPOINT", url)

    def _ask(self, sql: str, url: str | None = None) -> str:
        async def ask() -> Any:
            connection = await asyncpg.connect(url or self._url)
            try:
                return await connection.fetchval(sql)
            finally:
                await connection.close()

        return str(asyncio.run(ask()))
