"""The one place where PostgreSQL's errors become ours."""

from __future__ import annotations

from asyncpg import exceptions as pg

from windlass.core.errors import SchemaError, StoreCorruptError, StoreError, StoreUnavailableError


class Overtaken(Exception):  # noqa: N818 - no fault: the call is made again
    """Somebody else stored or deleted a job between the look at it and the write."""


# A transaction that met another one: nothing of it was written, and a second try will pass.
MEETINGS = (
    Overtaken,
    pg.DeadlockDetectedError,
    pg.SerializationError,
    pg.UniqueViolationError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
# Whoever met one of these leaves the connection: it may be torn (also by a timeout), or lead to a
# server, or have a setting, that takes no writes, while the next one does not.
DOUBTFUL = (OSError, pg.InternalClientError, pg.ReadOnlySQLTransactionError)
FOREIGN = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError, TimeoutError)

_UNAVAILABLE: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError),
        "refused the user or the password: correct them in the URL, or in ~/.pgpass",
    ),
    (
        (pg.InvalidCatalogNameError,),
        "has no such database: create it (createdb), or correct the URL; then run windlass migrate",
    ),
    (
        (pg.ReadOnlySQLTransactionError,),
        "takes no writes: it is a standby, or set to read-only; name the primary in the URL",
    ),
    (
        (pg.InsufficientPrivilegeError,),
        "does not let this user do that: grant what is missing, or use a role that may",
    ),
    (
        (pg.TooManyConnectionsError,),
        "has no connection left: raise max_connections, or put pgbouncer before it",
    ),
    (
        (pg.DiskFullError,),
        "has a full disk: nothing was stored; make room, and the next call works again",
    ),
    (
        (pg.QueryCanceledError, pg.LockNotAvailableError, TimeoutError),
        "did not answer in time: is it overloaded? look for long transactions (pg_stat_activity)",
    ),
    (
        (pg.ObjectNotInPrerequisiteStateError,),
        "has a database that takes no connections: is it being moved or restored?",
    ),
    (
        (pg.ProtocolViolationError,),
        "is no server but a pooler (pgbouncer)? then put statement_cache_size=0 into the URL",
    ),
    (
        (pg.CannotConnectNowError, pg.AdminShutdownError, pg.CrashShutdownError),
        "is starting or stopping: the next calls work again once it is up",
    ),
    (
        # The driver's own error: it has read the server's farewell, and not yet the end.
        (pg.PostgresConnectionError, pg.InterfaceError, pg.InternalClientError, OSError),
        "cannot be reached, or the connection broke: is it up, and are host and port right?",
    ),
)


def translate(error: Exception, where: str) -> StoreError:
    """What went wrong, where, and what to do. The outcome of the call is unknown."""
    said = f" ({error})" if str(error) else ""
    match error:
        case pg.UndefinedTableError() | pg.UndefinedColumnError() | pg.UndefinedFunctionError():
            return SchemaError(
                f"{where} lacks part of the schema{said}: run windlass migrate, "
                "and see that search_path finds it"
            )
        case pg.DataCorruptedError() | pg.IndexCorruptedError():
            return StoreCorruptError(f"{where} is damaged{said}: restore a backup")
        case pg.DataError():
            return StoreError(f"a value cannot be sent to {where}{said}")
    for kinds, what in _UNAVAILABLE:
        if isinstance(error, kinds):
            return StoreUnavailableError(f"{where} {what}{said}")
    code = getattr(error, "sqlstate", None) or type(error).__name__
    return StoreError(f"{where} refused a statement ({code}: {error})")
