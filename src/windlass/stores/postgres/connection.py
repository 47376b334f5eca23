"""Opening a connection: where to, with which settings, and how plans are kept the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.stores.postgres.errors import DOUBTFUL, FOREIGN, translate

Row: TypeAlias = Sequence[Any]

# A machine that vanished in the middle of a transaction must not hold its jobs' locks for hours.
#
# Plans are kept for as long as a connection lasts, and one that was made when a table was small
# would read all of it once it is large. So there is one way to read anything here: by its index, in
# nested loops, which also locks rows in the order in which they were asked for.
SETTINGS = {
    "application_name": "windlass",
    "default_transaction_isolation": "read committed",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "idle_in_transaction_session_timeout": "30s",
    # A backend that waits for a lock would not notice that its client gave up, and act later.
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


class Connection(Protocol):
    """What we use of asyncpg's connection."""

    async def fetch(self, query: str, *parameters: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *parameters: object) -> Row | None: ...

    async def fetchval(self, query: str, *parameters: object) -> Any: ...

    async def execute(self, query: str, *parameters: object) -> str: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...

    def terminate(self) -> None: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    def get_server_pid(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """Where the server is and how it is spoken with.

    `statement_cache_size=0` is for a pooler in transaction mode (pgbouncer): no statement is kept
    on a connection and no setting is asked for. `pool` is how many connections one handle opens at
    most, `timeout` how many seconds a statement may take. `listen` is where news is heard past a
    pooler, as host:port (or the directory of a socket), or off. `migrate` makes the schema by
    itself, for development; elsewhere `windlass migrate` does.
    """

    url: str
    statement_cache_size: int = 100
    pool: int = 5
    timeout: float = 30.0
    connect_timeout: float = 10.0
    listen: str = ""
    migrate: bool = False

    def __post_init__(self) -> None:
        for name in ("pool", "timeout", "connect_timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise InvalidArgumentError(f"{name}={value:g} in the store URL must be positive")

    @staticmethod
    def of(url: str) -> PostgresConfig:
        """From a URL: our own options are taken out of it, the rest is the driver's."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        ours = {name: text for name, text in options if name in _OPTIONS}
        theirs = [(name, text) for name, text in options if name not in _OPTIONS]
        try:
            values = {name: _OPTIONS[name](text) for name, text in ours.items()}
        except (ValueError, KeyError):
            known = ", ".join(_OPTIONS)
            raise InvalidArgumentError(
                f"an option of the store URL is wrong: {urlencode(ours)} (there are: {known})"
            ) from None
        bare = urlunsplit(parts._replace(query=urlencode(theirs)))
        return PostgresConfig(url=bare, **cast("dict[str, Any]", values))

    @property
    def listening(self) -> PostgresConfig | None:
        """How to reach what LISTEN is said to; None: nobody listens, and everybody polls."""
        if not self.listen:
            return self
        if self.listen == "off":
            return None
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        options = [pair for pair in parse_qsl(parts.query) if pair[0] not in {"host", "port"}]
        place = self.listen
        if place.startswith("/"):
            options.append(("host", place))
            place = ""
        direct = parts._replace(netloc=f"{user}{at}{place}", query=urlencode(options))
        return replace(self, url=urlunsplit(direct), statement_cache_size=100)

    @property
    def where(self) -> str:
        """For messages: without the password."""
        parts = urlsplit(self.url)
        user, _, place = parts.netloc.rpartition("@")
        name = user.partition(":")[0]
        options = dict(parse_qsl(parts.query))
        host = place or options.get("host", "")
        return f"postgresql://{f'{name}@' if name else ''}{host}{parts.path}"


_OPTIONS: dict[str, Callable[[str], object]] = {
    "statement_cache_size": int,
    "pool": int,
    "timeout": float,
    "connect_timeout": float,
    "listen": str,
    "migrate": {"true": True, "1": True, "false": False, "0": False}.__getitem__,
}


async def connect(config: PostgresConfig) -> Connection:
    settings = SETTINGS if config.statement_cache_size else {}
    try:
        made = await asyncpg.connect(
            config.url,
            timeout=config.connect_timeout,
            command_timeout=config.timeout,
            statement_cache_size=config.statement_cache_size,
            max_cached_statement_lifetime=0,
            server_settings=settings,
        )
    except FOREIGN as error:
        raise translate(error, config.where) from error
    except ValueError as error:
        raise InvalidArgumentError(f"the store URL of {config.where} is wrong: {error}") from error
    return cast("Connection", made)


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncIterator[None]:
    """All or nothing. Whoever is torn out of it leaves a connection that nobody uses again."""
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    try:
        yield
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    except BaseException:
        connection.terminate()
        raise
    await connection.execute("COMMIT")


class Pool:
    """A few connections of one event loop, the last used first; opened when needed."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._slots = asyncio.Semaphore(config.pool)
        self._idle: list[Connection] = []
        self._guard: AsyncGenerator[None] | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One that nobody else uses. After an error that leaves it in doubt it is dropped."""
        if self._slots.locked():
            await self._wait()
        else:
            await self._slots.acquire()
        try:
            connection = await self._take()
            try:
                yield connection
            except BaseException as error:
                torn = isinstance(error, (*DOUBTFUL, asyncio.CancelledError))
                if torn or connection.is_in_transaction():
                    connection.terminate()
                raise
            finally:
                if not connection.is_closed():
                    self._idle.append(connection)
        finally:
            self._slots.release()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._config.timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise StoreUnavailableError(
                f"all {self._config.pool} connections to {self._config.where} were busy for "
                f"{self._config.timeout:g} s: raise pool= in the URL, or look for slow statements"
            ) from None

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        if self._guard is None:
            self._guard = self._until_the_loop_ends()
            await anext(self._guard)
        return await connect(self._config)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None]:
        """A loop closes the generators that it leaves behind: whoever forgets to close us, too."""
        try:
            yield
        finally:
            while self._idle:
                self._idle.pop().terminate()

    async def close(self) -> None:
        """What is in use has to be given back before."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._let_go(connection) for connection in idle))
        if self._guard is not None:
            await self._guard.aclose()

    async def _let_go(self, connection: Connection) -> None:
        try:
            await connection.close(timeout=self._config.connect_timeout)
        except FOREIGN:
            connection.terminate()
