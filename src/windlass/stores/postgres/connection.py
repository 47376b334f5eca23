"""Connections to the PostgreSQL server: session settings, sockets, transactions, pool."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeAlias, cast

import asyncpg

from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.errors import CONNECTION_SUSPECT, DRIVER_ERRORS, translate

Row: TypeAlias = Sequence[Any]

# The timeouts release the locks of a machine that vanished inside a transaction.
#
# A connection keeps its plans. A plan made while a table was small would read all of it once it is
# large. So the planner may only use indexes and nested loops, which also lock rows in the order of
# the parameters.
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
    # Otherwise a backend that waits for a lock continues after its client disconnected.
    "client_connection_check_interval": "5s",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}
# Client side: the kernel detects a server that vanished (a failover). Idle connections fail within
# 20 s, those that wait for a response within 5 s of their last packet.
SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 2),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 5000),
)


class Connection(Protocol):
    """The part of asyncpg's connection that the store uses."""

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


async def connect(config: PostgresConfig) -> Connection:
    settings = SETTINGS if config.statement_cache_size else {}
    try:
        connection = await asyncpg.connect(
            config.url,
            timeout=config.connect_timeout,
            command_timeout=config.timeout,
            statement_cache_size=config.statement_cache_size,
            max_cached_statement_lifetime=0,
            server_settings=settings,
        )
    except (*DRIVER_ERRORS, ValueError, IndexError) as error:
        if isinstance(error, ValueError | IndexError) and not isinstance(error, OSError):
            # The driver could not parse the URL. Only its own errors quote no password.
            why = f": {error}" if isinstance(error, asyncpg.InterfaceError) else ""
            raise InvalidArgumentError(f"the store URL of {config.where} is invalid{why}") from None
        raise translate(error, config.where) from error
    _set_socket_options(connection)
    return cast("Connection", connection)


def _set_socket_options(connection: Any) -> None:
    """Set keepalive and timeout options that this platform supports."""
    borrowed = connection._transport.get_extra_info("socket")  # noqa: SLF001 - no public access
    if borrowed is None:
        return
    # A duplicate: some event loops return an object without setsockopt.
    with socket.socket(fileno=os.dup(borrowed.fileno())) as copy:
        if copy.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        for level, name, value in SOCKET_OPTIONS:
            option = getattr(socket, name, None)
            if option is not None:
                with contextlib.suppress(OSError):
                    copy.setsockopt(level, option, value)


@asynccontextmanager
async def transaction(connection: Connection) -> AsyncIterator[None]:
    """Run the block in a transaction. A cancellation terminates the connection."""
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


class ConnectionPool:
    """Connections of one event loop, opened on demand; reuses the last used first."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._slots = asyncio.Semaphore(config.pool)
        self._idle: list[Connection] = []
        self._loop_guard: AsyncGenerator[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection. An error that may have broken it terminates it."""
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
                suspect = isinstance(error, (*CONNECTION_SUSPECT, asyncio.CancelledError))
                if suspect or connection.is_in_transaction():
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
                f"{self._config.timeout:g} s: raise pool= in the URL, or check for slow statements"
            ) from None

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        if self._loop_guard is None:
            self._loop_guard = self._close_with_loop()
            await anext(self._loop_guard)
        return await connect(self._config)

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Drop idle connections when the event loop shuts down its generators, if not closed."""
        try:
            yield
        finally:
            self._drop_idle()

    def _drop_idle(self) -> None:
        """Terminate all idle connections: probing each dead one would cost a timeout."""
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        """Close idle connections; those in use are terminated when they are returned."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._close_connection(connection) for connection in idle))
        if self._loop_guard is not None:
            await self._loop_guard.aclose()

    async def _close_connection(self, connection: Connection) -> None:
        try:
            await connection.close(timeout=self._config.connect_timeout)
        except DRIVER_ERRORS:
            connection.terminate()
