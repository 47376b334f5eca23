"""Opens the store that a URL names, and imports only its driver."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError, StoreError
from windlass.settings import store_key
from windlass.store import Store
from windlass.stores.checkup import Finding
from windlass.stores.urls import CONTROL, HTTP, POSTGRES, invalid_url, split

DEFAULT_URL = "sqlite:///windlass.db"
# SQLSTATE classes: connection exceptions, insufficient resources, operator intervention
_TRANSIENT = {"08", "53", "57"}
# Options per URL scheme. PostgreSQL options are passed on to its driver.
_OPTIONS = {
    "memory": set[str](),
    "sqlite": {"durability"},
    "http": set[str](),
    "https": set[str](),
}


def open_store(
    url: str = DEFAULT_URL, *, clock: Clock | None = None, key: str | None = None
) -> Store:
    """Open the store that the URL names.

    `sqlite:///x.db` is a relative path, `sqlite:////var/x.db` an absolute one. A server
    (`https://host`) is opened with `key`, or with the key in the settings.
    """
    parts, options = _parse(url)
    if parts.scheme in HTTP:
        return _open_server(url, clock, key)
    if key is not None:
        raise InvalidArgumentError("a key applies only to a server, https://host; remove it")
    match parts.scheme:
        case "memory":
            from windlass.stores.memory import MemoryStore  # noqa: PLC0415 - lazy import

            return MemoryStore(clock=clock)
        case "sqlite":
            from windlass.stores.sqlite import SqliteStore  # noqa: PLC0415 - lazy import

            path = _path(url, parts)
            durability = options.get("durability", "full")
            return SqliteStore(path, durability=durability, clock=clock)
        case _:
            _require_asyncpg()
            from windlass.stores.postgres import PostgresStore  # noqa: PLC0415 - lazy import

            return PostgresStore(url, clock=clock)


def _open_server(url: str, clock: Clock | None, key: str | None) -> Store:
    if clock is not None:
        raise InvalidArgumentError("clock does not apply to a server: it uses its own clock")
    _require_httpx()
    from windlass.stores.http import HttpConfig, HttpStore  # noqa: PLC0415 - lazy import

    return HttpStore(HttpConfig(url=url, key=store_key(key)))


def sqlite_path(url: str) -> Path | None:
    """Return the path of a SQLite URL; None for other stores."""
    parts, _ = _parse(url)
    return Path(_path(url, parts)).absolute() if parts.scheme == "sqlite" else None


def migration_script(url: str) -> str:
    """Return the SQL that `migrate` would run on this store; empty if it is up to date."""
    if _parse(url)[0].scheme in POSTGRES:
        _require_asyncpg()
        from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - lazy import
        from windlass.stores.postgres.schema import migrator  # noqa: PLC0415 - lazy import

        return asyncio.run(migrator.script(PostgresConfig.of(url)))
    path = sqlite_path(url)
    if path is None:
        return ""
    from windlass.stores.sqlite import connection  # noqa: PLC0415 - lazy import

    return connection.script(path)


def roles_script(url: str) -> str:
    """Return the SQL that creates least-privilege roles."""
    if _parse(url)[0].scheme not in POSTGRES:
        raise InvalidArgumentError(
            "roles exist only on PostgreSQL: use --url postgresql://host/database"
        )
    _require_asyncpg()
    from windlass.stores.postgres.schema import privileges  # noqa: PLC0415 - lazy import

    return privileges.script()


async def checkup(
    url: str, *, clock: Clock | None = None, key: str | None = None
) -> list[Finding] | None:
    """Check the store; None if this kind of store has no checks."""
    scheme = _parse(url)[0].scheme
    if scheme in HTTP:
        _require_httpx()
        from windlass.stores.http.checkup import checkup as check_server  # noqa: PLC0415

        return await check_server(url, store_key(key))
    if scheme not in POSTGRES:
        return None
    _require_asyncpg()
    from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - lazy import
    from windlass.stores.postgres.schema.checkup import (  # noqa: PLC0415 - lazy import
        checkup as check_database,
    )

    return await check_database(PostgresConfig.of(url), clock)


def is_transient(error: StoreError) -> bool:
    """Return whether a retry may succeed: the server is down, starting or full.

    The cause is the driver's error: it has a SQLSTATE if PostgreSQL sent it, else it is an OSError.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    return state[:2] in _TRANSIENT if state else isinstance(error.__cause__, OSError)


def _require_asyncpg() -> None:
    if find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            "a PostgreSQL store needs the package asyncpg: pip install 'windlass[postgres]'"
        )


def _require_httpx() -> None:
    if find_spec("httpx") is None:
        raise InvalidArgumentError(
            "an HTTP store needs the package httpx: pip install 'windlass[http]'"
        )


def _parse(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Split a URL and its options; raise InvalidArgumentError if it names no store."""
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - _OPTIONS.get(parts.scheme, set(options))):
        names = ", ".join(unknown)
        raise invalid_url(url, f"has unknown options: {names} (write a '?' in a file name as %3F)")
    return parts, options


def _path(url: str, parts: SplitResult) -> str:
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path.strip("/"):
        raise invalid_url(
            url,
            "names no file: use sqlite:///file.db (relative, three slashes) "
            "or sqlite:////path/file.db (absolute, four)",
        )
    if CONTROL.search(path):
        raise invalid_url(url, "contains a control character")
    return path
