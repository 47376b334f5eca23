"""Translation of PostgreSQL and driver errors to store errors."""

from __future__ import annotations

from asyncpg import exceptions as pg

from windlass.core.errors import SchemaError, StoreCorruptError, StoreError, StoreUnavailableError


class ConcurrentChange(Exception):  # noqa: N818 - not an error: the call is retried
    """Another transaction stored or deleted a job between the read and the write."""


# A conflict with another transaction: nothing was written, and a retry succeeds.
RETRYABLE = (
    ConcurrentChange,
    pg.DeadlockDetectedError,
    pg.SerializationError,
    pg.UniqueViolationError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
# After one of these the connection is closed. It may be broken, also by a timeout. Or its server or
# session is read-only; a new connection may accept writes.
CONNECTION_SUSPECT = (OSError, pg.InternalClientError, pg.ReadOnlySQLTransactionError)
DRIVER_ERRORS = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError, TimeoutError)

_UNAVAILABLE: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError),
        "refused the user or the password: correct them in the URL or in ~/.pgpass",
    ),
    (
        (pg.InvalidCatalogNameError,),
        "has no such database: create it (createdb), or correct the URL; then run windlass migrate",
    ),
    (
        (pg.ReadOnlySQLTransactionError,),
        "is read-only: it is a standby, or set to read-only; name the primary in the URL",
    ),
    (
        (pg.InsufficientPrivilegeError,),
        "denied permission to this user: grant what is missing, or use another role",
    ),
    (
        (pg.TooManyConnectionsError,),
        "has no free connections: raise max_connections, or add a pooler (pgbouncer)",
    ),
    (
        (pg.DiskFullError,),
        "has a full disk: nothing was stored; free disk space, then calls succeed again",
    ),
    (
        (pg.QueryCanceledError, pg.LockNotAvailableError, TimeoutError),
        "did not respond in time: check its load and long transactions (pg_stat_activity)",
    ),
    (
        (pg.ObjectNotInPrerequisiteStateError,),
        "has a database that accepts no connections: is it being moved or restored?",
    ),
    (
        (pg.ProtocolViolationError,),
        "seems to be a pooler (pgbouncer): set statement_cache_size=0 in the URL",
    ),
    (
        (pg.CannotConnectNowError, pg.AdminShutdownError, pg.CrashShutdownError),
        "is starting or stopping: calls succeed again once it is up",
    ),
    (
        # The driver raises its own error if it has read the server's last message, but not EOF.
        (pg.PostgresConnectionError, pg.InterfaceError, pg.InternalClientError, OSError),
        "cannot be reached, or the connection was lost: check that it is up, and host and port",
    ),
)


def translate(error: Exception, where: str) -> StoreError:
    """Return the store error: what failed, where, what to do. The call may have been applied."""
    detail = f" ({error})" if str(error) else ""
    match error:
        case pg.UndefinedTableError() | pg.UndefinedColumnError() | pg.UndefinedFunctionError():
            return SchemaError(
                f"{where} lacks part of the schema{detail}: run windlass migrate, "
                "and check that search_path contains it"
            )
        case pg.DataCorruptedError() | pg.IndexCorruptedError():
            return StoreCorruptError(f"{where} is corrupted{detail}: restore a backup")
        case pg.DataError():
            return StoreError(f"a value cannot be sent to {where}{detail}")
    for kinds, what in _UNAVAILABLE:
        if isinstance(error, kinds):
            return StoreUnavailableError(f"{where} {what}{detail}")
    code = getattr(error, "sqlstate", None) or type(error).__name__
    return StoreError(f"{where} refused a statement ({code}: {error})")
