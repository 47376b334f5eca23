"""Administration of the store that a URL names: migration script, roles script, checkup."""

from __future__ import annotations

import asyncio

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError
from windlass.settings import store_key
from windlass.stores.checkup_finding import Finding
from windlass.stores.driver_check import require_asyncpg, require_httpx
from windlass.stores.urls import HTTP, POSTGRES, parse, sqlite_path


def migration_script(url: str) -> str:
    """Return the SQL that `migrate` would run on this store; empty if it is up to date."""
    if parse(url)[0].scheme in POSTGRES:
        require_asyncpg()
        from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - lazy import
        from windlass.stores.postgres.admin import migrator  # noqa: PLC0415 - lazy import

        return asyncio.run(migrator.script(PostgresConfig.of(url)))
    path = sqlite_path(url)
    if path is None:
        return ""
    from windlass.stores.sqlite import migrator as sqlite_migrator  # noqa: PLC0415 - lazy

    return sqlite_migrator.script(path)


def roles_script(url: str) -> str:
    """Return the SQL that creates least-privilege roles."""
    if parse(url)[0].scheme not in POSTGRES:
        raise InvalidArgumentError(
            "roles exist only on PostgreSQL: use --url postgresql://host/database"
        )
    require_asyncpg()
    from windlass.stores.postgres.admin import privileges  # noqa: PLC0415 - lazy import

    return privileges.script()


async def checkup(
    url: str, *, clock: Clock | None = None, key: str | None = None
) -> list[Finding] | None:
    """Check the store; None if this kind of store has no checks."""
    scheme = parse(url)[0].scheme
    if scheme in HTTP:
        require_httpx()
        from windlass.stores.http.server_checkup import checkup as check_server  # noqa: PLC0415

        return await check_server(url, store_key(key))
    if scheme not in POSTGRES:
        return None
    require_asyncpg()
    from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - lazy import
    from windlass.stores.postgres.admin.database_checkup import (  # noqa: PLC0415 - lazy import
        checkup as check_database,
    )

    return await check_database(PostgresConfig.of(url), clock)
