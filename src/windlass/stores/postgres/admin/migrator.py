"""Migrations of the schema, and the check before its first use."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.errors import SchemaError
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection, connect, transaction
from windlass.stores.postgres.errors import DRIVER_ERRORS, translate
from windlass.stores.sql import migrations
from windlass.stores.sql.migrations import Applied, Migration

MIGRATIONS = migrations.read("windlass.stores.postgres.migrations")
MIN_SERVER = 150_000
_LOCK = 0x77696E646C617373  # advisory lock number: "windlass"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS windlass_schema (version bigint PRIMARY KEY, "
    "name text NOT NULL, checksum text NOT NULL, breaking integer NOT NULL, "
    "applied_at bigint NOT NULL)"
)
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SERVER = (
    "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), "
    "to_regclass('windlass_schema') IS NOT NULL"
)
_APPLIED = "SELECT version, name, checksum, breaking FROM windlass_schema"
_APPLY = (
    "INSERT INTO windlass_schema (version, name, checksum, breaking, applied_at) "
    "VALUES ($1, $2, $3, $4, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
)


async def _pending(connection: Connection, where: str) -> list[Migration]:
    """Return the pending migrations. Raise if the server or its schema is not supported."""
    found = await connection.fetchrow(_SERVER)
    assert found is not None
    version, encoding, has_schema = found
    if version < MIN_SERVER:
        raise SchemaError(f"{where} is PostgreSQL {version // 10_000}; Windlass needs 15 or newer")
    if encoding != "UTF8":
        raise SchemaError(
            f"{where} has encoding {encoding}, which cannot store every job: "
            "create the database with ENCODING 'UTF8'"
        )
    records = await connection.fetch(_APPLIED) if has_schema else []
    applied = [
        Applied(v, name, checksum, bool(breaking)) for v, name, checksum, breaking in records
    ]
    return migrations.plan(MIGRATIONS, applied, where)


async def check(connection: Connection, where: str) -> None:
    """Raise if the schema is older than this version, or newer and incompatible."""
    pending = await _pending(connection, where)
    if not pending:
        return
    if len(pending) == len(MIGRATIONS):
        raise SchemaError(
            f"{where} has no Windlass schema: run windlass migrate "
            "(or, in development, set migrate=true in the URL)"
        )
    raise SchemaError(
        f"{where} has an older schema, {pending[0].version - 1} of {MIGRATIONS[-1].version}: "
        "run windlass migrate"
    )


async def migrate(connection: Connection, where: str) -> Sequence[str]:
    """Run the pending migrations under a lock; several processes may call this concurrently."""
    if not await _pending(connection, where):
        return []
    async with transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_SCHEMA)
        pending = await _pending(connection, where)
        for migration in pending:
            await connection.execute(migration.sql)
            await connection.execute(
                _APPLY,
                migration.version,
                migration.name,
                migration.checksum,
                int(migration.breaking),
            )
    return [f"{migration.version:04d}_{migration.name}" for migration in pending]


async def script(config: PostgresConfig) -> str:
    """Return the SQL that `migrate` would run, without changing the database."""
    connection = await connect(config)
    try:
        pending = await _pending(connection, config.where)
    except DRIVER_ERRORS as error:
        raise translate(error, config.where) from error
    finally:
        await connection.close()
    return migrations.script(pending, _SCHEMA, _NOW, begin="BEGIN")
