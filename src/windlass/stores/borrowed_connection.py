"""The caller's own connection, whichever library made it: one statement in their transaction.

Known are those of asyncpg, psycopg 3 (sync and async), SQLAlchemy 2 (sessions and connections, sync
and async) and Django. None of these is imported before a connection of its kind is given. Every
statement takes one text and answers texts, so that no type adapter of the caller's gets in the way;
`:given` marks where the text goes.
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

GIVEN = ":given"
_KNOWN = "asyncpg, psycopg 3, SQLAlchemy 2 and Django (django.db.connection)"


class Borrowed:
    """A connection of the caller's. What it cannot do says what to write instead."""

    name: ClassVar[str]

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def call(self, sql: str, given: str) -> list[str]:
        """Run one of our statements in the transaction that is open."""
        try:
            return self._run(sql, given)
        except Exception as error:
            known = _ours(error)
            if known is None:
                raise  # in the driver's own words
            raise known from error

    async def acall(self, sql: str, given: str) -> list[str]:
        """The same in async code. A sync connection blocks the event loop for the statement."""
        try:
            return await self._arun(sql, given)
        except Exception as error:
            known = _ours(error)
            if known is None:
                raise  # in the driver's own words
            raise known from error

    def _run(self, sql: str, given: str) -> list[str]:  # noqa: ARG002 - for those that can
        raise ConfigurationError(
            f"this {self.name} connection is async: write `await task.aenqueue(…)`, "
            "and in a task `await ctx.asettle_within(…)`"
        )

    async def _arun(self, sql: str, given: str) -> list[str]:
        return self._run(sql, given)


class _Asyncpg(Borrowed):
    name = "asyncpg"

    async def _arun(self, sql: str, given: str) -> list[str]:
        if not self._connection.is_in_transaction():
            raise no_transaction("`async with connection.transaction():`")
        found = await self._connection.fetch(sql.replace(GIVEN, "$1"), given)
        return [row[0] for row in found]


class _Psycopg(Borrowed):
    name = "psycopg"

    def _run(self, sql: str, given: str) -> list[str]:
        from psycopg import Cursor  # noqa: PLC0415 - it is there: they use it
        from psycopg.rows import tuple_row  # noqa: PLC0415

        _check_psycopg(self._connection)
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            found = cursor.execute(_format(sql), [given])
            return [row[0] for row in found]


class _AsyncPsycopg(Borrowed):
    name = "psycopg"

    async def _arun(self, sql: str, given: str) -> list[str]:
        from psycopg import AsyncCursor  # noqa: PLC0415
        from psycopg.rows import tuple_row  # noqa: PLC0415

        _check_psycopg(self._connection)
        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            found = await cursor.execute(_format(sql), [given])
            return [row[0] async for row in found]


def _check_psycopg(connection: Any) -> None:
    from psycopg.pq import TransactionStatus  # noqa: PLC0415

    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise no_transaction("`with connection.transaction():`")


def _format(sql: str) -> Any:
    return sql.replace(GIVEN, "%s")


class _Sqlalchemy(Borrowed):
    name = "SQLAlchemy"

    def _run(self, sql: str, given: str) -> list[str]:
        from sqlalchemy import text  # noqa: PLC0415

        connection = self._its_connection()
        _check_sqlalchemy(connection)
        return list(connection.execute(text(sql), {"given": given}).scalars())

    def _its_connection(self) -> Any:
        return self._connection


class _Session(_Sqlalchemy):
    def _its_connection(self) -> Any:
        return self._connection.connection()  # that of its transaction, begun if there is none


class _AsyncSqlalchemy(Borrowed):
    name = "SQLAlchemy"

    async def _arun(self, sql: str, given: str) -> list[str]:
        from sqlalchemy import text  # noqa: PLC0415

        connection = await self._its_connection()
        _check_sqlalchemy(connection.sync_connection)
        found = await connection.execute(text(sql), {"given": given})
        return list(found.scalars())

    async def _its_connection(self) -> Any:
        return self._connection


class _AsyncSession(_AsyncSqlalchemy):
    async def _its_connection(self) -> Any:
        return await self._connection.connection()


def _check_sqlalchemy(connection: Any) -> None:
    _check_vendor("SQLAlchemy", connection.dialect.name)
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise no_transaction("an engine without isolation_level='AUTOCOMMIT', and `begin()`")


class _Django(Borrowed):
    name = "Django"

    def _run(self, sql: str, given: str) -> list[str]:
        connection = self._connection
        _check_vendor("Django", connection.vendor)
        if connection.get_autocommit():
            raise no_transaction("`with transaction.atomic():`")
        with connection.cursor() as cursor:
            cursor.execute(sql.replace(GIVEN, "%s"), [given])
            return [row[0] for row in cursor.fetchall()]

    async def _arun(self, sql: str, given: str) -> list[str]:  # noqa: ARG002
        raise ConfigurationError(
            "Django's connections are not for async code: write `task.enqueue(…)`, or "
            "`ctx.settle_within(…)`, in a function that `sync_to_async` calls"
        )


def borrow(connection: Any) -> Borrowed:
    """The way to speak through this connection; a ConfigurationError if there is none."""
    kinds = {
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(connection).__mro__
    }
    for kind, names in _KINDS:
        if not kinds.isdisjoint(names):
            return kind(connection)
    raise ConfigurationError(
        f"within takes a connection of {_KNOWN}; this is a {type(connection).__module__}."
        f"{type(connection).__qualname__}"
    )


_KINDS: tuple[tuple[type[Borrowed], frozenset[str]], ...] = (
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
            f"this {library} connection leads to {vendor}, and the jobs are in PostgreSQL: "
            "give the connection of the same database"
        )


def no_transaction(how: str) -> ConfigurationError:
    return ConfigurationError(
        "no transaction is open on this connection, so that a job could not be taken back with "
        f"your rows: open one before, by {how}; or enqueue without within"
    )


def _ours(error: Exception) -> WindlassError | None:
    """What our functions on the server raised, in our words; None for what is the driver's own."""
    seen: Any = error
    while seen is not None:
        code = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if code is not None:
            return meant(code, str(seen).partition("\n")[0])
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def meant(code: str, said: str) -> WindlassError | None:
    """What a SQLSTATE of our functions says."""
    match code:
        case "WL001":
            return StaleLeaseError(f"{said}; the transaction is rolled back")
        case "WL002":
            return ConfigurationError(f"{said}: give a connection of the database in the app's URL")
        case "WL003":
            return ConflictError(said)
        case "WL005":
            return NotFoundError(said)
        case "42883" | "42P01":
            return SchemaError(
                f"the database of this connection lacks the Windlass schema ({said}): "
                "is it the app's, is it migrated (windlass migrate), does search_path find it?"
            )
    return None
