"""Opening a connection: where to, with which settings, and how plans are kept the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.stores.postgres.errors import DOUBTFUL, FOREIGN, translate
from windlass.stores.urls import public_url, split

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
    "plan_cache_mode": "force_generic_plan",
    "idle_in_transaction_session_timeout": "30s",
    # A backend that waits for a lock would not notice that its client gave up, and act later.
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}
# The same on our side: a server that vanished without a word (a failover) is noticed by the kernel,
# idle connections within 20 s, and those that wait for an answer within 5 s of their last word.
SOCKET = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 5000),
)


class Connection(Protocol):
    """What we use of asyncpg's connection."""

    async def fetch(
        self,
        query: str,
        *parameters: object,
        timeout: float | None = None,
    ) -> list[Row]: ...

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

    url: str = field(repr=False)  # it may hold a password
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
        parts = split(url)
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
        shown, _, options = public_url(self.url).partition("?")
        authority, slash, database = shown.partition("://")[2].partition("/")
        user, at, place = authority.replace(":***", "").rpartition("@")
        host = place or dict(parse_qsl(options)).get("host", "")
        return f"postgresql://{user}{at}{host}{slash}{database}"


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
    except (*FOREIGN, ValueError, IndexError) as error:
        if isinstance(error, ValueError | IndexError) and not isinstance(error, OSError):
            # The driver could not read the URL. Only of its own words we know what they quote.
            why = f": {error}" if isinstance(error, asyncpg.InterfaceError) else ""
            raise InvalidArgumentError(f"the store URL of {config.where} is wrong{why}") from None
        raise translate(error, config.where) from error
    _watch(made)
    return cast("Connection", made)


def _watch(made: Any) -> None:
    """Have the kernel watch the line, as far as this system can."""
    line = made._transport.get_extra_info("socket")  # noqa: SLF001 - there is no other way to it
    if line is None:
        return
    with socket.socket(fileno=os.dup(line.fileno())) as ours:  # some event loops lend only part
        if ours.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        for level, name, value in SOCKET:
            option = getattr(socket, name, None)
            if option is not None:
                with contextlib.suppress(OSError):
                    ours.setsockopt(level, option, value)


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
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One that nobody else uses. After an error that leaves it in doubt it is dropped."""
        if self._closed:
            raise StoreUnavailableError(f"the store on {self._config.where} is closed")
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
                if isinstance(error, OSError):
                    self._drop_idle()
                raise
            finally:
                if self._closed:
                    connection.terminate()
                elif not connection.is_closed():
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
            self._drop_idle()

    def _drop_idle(self) -> None:
        """They led to the same server: to find out about each would cost a timeout for each."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """What is in use should be given back before; what comes later is closed then."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._let_go(connection) for connection in idle))
        if self._guard is not None:
            await self._guard.aclose()

    async def _let_go(self, connection: Connection) -> None:
        try:
            await connection.close(timeout=self._config.connect_timeout)
        except FOREIGN:
            connection.terminate()
