"""Adapters that run one statement on the caller's own database connection.

Supports asyncpg, psycopg 3 (sync and async), SQLAlchemy 2 (sessions and connections, sync and
async) and Django. A library is imported only when one of its connections is passed in. Every
statement takes one text and returns texts, so type adapters of the caller's connection do not
matter. `:argument` marks the place of the text argument.
"""

from __future__ import annotations

from typing import Any, ClassVar

from windlass.core.errors import (
    ConfigurationError,
    ConflictError,
    NotFoundError,
    SchemaError,
    StaleLeaseError,
    WindlassError,
)

ARGUMENT = ":argument"
_SUPPORTED = "asyncpg, psycopg 3, SQLAlchemy 2 and Django (django.db.connection)"


class BorrowedConnection:
    """Connection of the caller. An unsupported call raises an error that names the alternative."""

    name: ClassVar[str]

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def call(self, sql: str, argument: str) -> list[str]:
        """Run one Windlass statement in the open transaction."""
        try:
            return self._run(sql, argument)
        except Exception as error:
            translated = _translate(error)
            if translated is None:
                raise  # the driver's own error
            raise translated from error

    async def acall(self, sql: str, argument: str) -> list[str]:
        """Run the statement from async code. A sync connection blocks the event loop meanwhile."""
        try:
            return await self._arun(sql, argument)
        except Exception as error:
            translated = _translate(error)
            if translated is None:
                raise  # the driver's own error
            raise translated from error

    def _run(self, sql: str, argument: str) -> list[str]:  # noqa: ARG002 - used by subclasses
        raise ConfigurationError(
            f"this {self.name} connection is async: use `await task.aenqueue(…)`, "
            "or in a task `await ctx.asettle_within(…)`"
        )

    async def _arun(self, sql: str, argument: str) -> list[str]:
        return self._run(sql, argument)


class _Asyncpg(BorrowedConnection):
    name = "asyncpg"

    async def _arun(self, sql: str, argument: str) -> list[str]:
        if not self._connection.is_in_transaction():
            raise no_transaction("`async with connection.transaction():`")
        rows = await self._connection.fetch(sql.replace(ARGUMENT, "$1"), argument)
        return [row[0] for row in rows]


class _Psycopg(BorrowedConnection):
    name = "psycopg"

    def _run(self, sql: str, argument: str) -> list[str]:
        from psycopg import Cursor  # noqa: PLC0415 - installed: the caller uses it
        from psycopg.rows import tuple_row  # noqa: PLC0415

        _check_psycopg(self._connection)
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(_format(sql), [argument])
            return [row[0] for row in rows]


class _AsyncPsycopg(BorrowedConnection):
    name = "psycopg"

    async def _arun(self, sql: str, argument: str) -> list[str]:
        from psycopg import AsyncCursor  # noqa: PLC0415
        from psycopg.rows import tuple_row  # noqa: PLC0415

        _check_psycopg(self._connection)
        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            rows = await cursor.execute(_format(sql), [argument])
            return [row[0] async for row in rows]


def _check_psycopg(connection: Any) -> None:
    from psycopg.pq import TransactionStatus  # noqa: PLC0415

    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise no_transaction("`with connection.transaction():`")


def _format(sql: str) -> Any:
    return sql.replace(ARGUMENT, "%s")


class _Sqlalchemy(BorrowedConnection):
    name = "SQLAlchemy"

    def _run(self, sql: str, argument: str) -> list[str]:
        from sqlalchemy import text  # noqa: PLC0415

        connection = self._raw_connection()
        _check_sqlalchemy(connection)
        return list(connection.execute(text(sql), {"argument": argument}).scalars())

    def _raw_connection(self) -> Any:
        return self._connection


class _Session(_Sqlalchemy):
    def _raw_connection(self) -> Any:
        return self._connection.connection()  # of its transaction, which is started if needed


class _AsyncSqlalchemy(BorrowedConnection):
    name = "SQLAlchemy"

    async def _arun(self, sql: str, argument: str) -> list[str]:
        from sqlalchemy import text  # noqa: PLC0415

        connection = await self._raw_connection()
        _check_sqlalchemy(connection.sync_connection)
        result = await connection.execute(text(sql), {"argument": argument})
        return list(result.scalars())

    async def _raw_connection(self) -> Any:
        return self._connection


class _AsyncSession(_AsyncSqlalchemy):
    async def _raw_connection(self) -> Any:
        return await self._connection.connection()


def _check_sqlalchemy(connection: Any) -> None:
    _check_vendor("SQLAlchemy", connection.dialect.name)
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction("an engine without isolation_level='AUTOCOMMIT', and `begin()`")


class _Django(BorrowedConnection):
    name = "Django"

    def _run(self, sql: str, argument: str) -> list[str]:
        connection = self._connection
        _check_vendor("Django", connection.vendor)
        if connection.get_autocommit():
            raise no_transaction("`with transaction.atomic():`")
        with connection.cursor() as cursor:
            cursor.execute(sql.replace(ARGUMENT, "%s"), [argument])
            return [row[0] for row in cursor.fetchall()]

    async def _arun(self, sql: str, argument: str) -> list[str]:  # noqa: ARG002
        raise ConfigurationError(
            "Django connections do not work in async code: call `task.enqueue(…)` or "
            "`ctx.settle_within(…)` in a function run by `sync_to_async`"
        )


def borrow(connection: Any) -> BorrowedConnection:
    """Return the adapter for this connection; raise ConfigurationError if it is not supported."""
    class_names = {
        f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(connection).__mro__
    }
    for adapter, names in _ADAPTERS:
        if not class_names.isdisjoint(names):
            return adapter(connection)
    raise ConfigurationError(
        f"within accepts connections of {_SUPPORTED}; got {type(connection).__module__}."
        f"{type(connection).__qualname__}"
    )


_ADAPTERS: tuple[tuple[type[BorrowedConnection], frozenset[str]], ...] = (
    (_Asyncpg, frozenset({"asyncpg.Connection", "asyncpg.PoolConnectionProxy"})),
    (_Psycopg, frozenset({"psycopg.Connection"})),
    (_AsyncPsycopg, frozenset({"psycopg.AsyncConnection"})),
    (_Sqlalchemy, frozenset({"sqlalchemy.Connection"})),
    (_Session, frozenset({"sqlalchemy.Session", "sqlalchemy.scoped_session"})),
    (_AsyncSqlalchemy, frozenset({"sqlalchemy.AsyncConnection"})),
    (_AsyncSession, frozenset({"sqlalchemy.AsyncSession", "sqlalchemy.async_scoped_session"})),
    (_Django, frozenset({"django.ConnectionProxy", "django.BaseDatabaseWrapper"})),
)


def _check_vendor(library: str, vendor: str) -> None:
    if vendor != "postgresql":
        raise ConfigurationError(
            f"this {library} connection is to {vendor}, but the jobs are in PostgreSQL: "
            "pass a connection to the same database"
        )


def no_transaction(how: str) -> ConfigurationError:
    return ConfigurationError(
        "no transaction is open on this connection, so the job could not be rolled back with "
        f"your rows: start one first, with {how}; or enqueue without within"
    )


def _translate(error: Exception) -> WindlassError | None:
    """Translate an error raised by Windlass functions on the server; None for any other error."""
    cause: Any = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code is not None:
            return sqlstate_error(code, str(cause).partition("\n")[0])
        cause = getattr(cause, "orig", None) or cause.__cause__
    return None


def sqlstate_error(code: str, message: str) -> WindlassError | None:
    """Return the error for a SQLSTATE raised by Windlass functions."""
    match code:
        case "WL001":
            return StaleLeaseError(f"{message}; the transaction is rolled back")
        case "WL002":
            return ConfigurationError(
                f"{message}: pass a connection to the database in the app's URL"
            )
        case "WL003":
            return ConflictError(message)
        case "WL005":
            return NotFoundError(message)
        case "42883" | "42P01":
            return SchemaError(
                f"no Windlass schema found on this connection ({message}): check that it is the "
                "app's database, that it is migrated (windlass migrate), and its search_path"
            )
    return None
