"""From a URL to a store, importing only the driver that the URL names."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote

from windlass.config import store_key
from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError, StoreError
from windlass.store import Store
from windlass.stores.checkup import Finding
from windlass.stores.urls import CONTROL, HTTP, POSTGRES, split, wrong

DEFAULT_URL = "sqlite:///windlass.db"
_PASSING = {"08", "53", "57"}  # classes: connections, resources, what an operator does
# Those of a database server are its driver's.
_OPTIONS = {
    "memory": set[str](),
    "sqlite": {"durability"},
    "http": set[str](),
    "https": set[str](),
}


def open_store(
    url: str = DEFAULT_URL, *, clock: Clock | None = None, key: str | None = None
) -> Store:
    """Open what the URL names. `sqlite:///x.db` is relative, `sqlite:////var/x.db` absolute.

    A server (`https://host`) is opened by `key`, or by the key of the settings.
    """
    parts, options = _parts(url)
    if parts.scheme in HTTP:
        return _server(url, clock, key)
    if key is not None:
        raise InvalidArgumentError("a key opens a server, https://host; this store needs none")
    match parts.scheme:
        case "memory":
            from windlass.stores.memory import MemoryStore  # noqa: PLC0415 - only what is named

            return MemoryStore(clock=clock)
        case "sqlite":
            from windlass.stores.sqlite import SqliteStore  # noqa: PLC0415 - only what is named

            path = _file(url, parts)
            durability = options.get("durability", "full")
            return SqliteStore(path, durability=durability, clock=clock)
        case _:
            _need_asyncpg()
            from windlass.stores.postgres import PostgresStore  # noqa: PLC0415 - only what is named

            return PostgresStore(url, clock=clock)


def _server(url: str, clock: Clock | None, key: str | None) -> Store:
    if clock is not None:
        raise InvalidArgumentError("a store behind a server goes by that server's clock")
    _need_httpx()
    from windlass.stores.http import HttpConfig, HttpStore  # noqa: PLC0415 - only what is named

    return HttpStore(HttpConfig(url=url, key=store_key(key)))


def file_of(url: str) -> Path | None:
    """The file that a SQLite URL names; None for every other sort of store."""
    parts, _ = _parts(url)
    return Path(_file(url, parts)).absolute() if parts.scheme == "sqlite" else None


def migration_script(url: str) -> str:
    """The SQL that `migrate` would run on what the URL names; empty when there is nothing to do."""
    if _parts(url)[0].scheme in POSTGRES:
        _need_asyncpg()
        from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - the same
        from windlass.stores.postgres.schema import migrator  # noqa: PLC0415 - the same

        return asyncio.run(migrator.script(PostgresConfig.of(url)))
    path = file_of(url)
    if path is None:
        return ""
    from windlass.stores.sqlite import connection  # noqa: PLC0415 - only what is named

    return connection.script(path)


def roles_script(url: str) -> str:
    """The SQL that makes least-privilege roles for what the URL names."""
    if _parts(url)[0].scheme not in POSTGRES:
        raise InvalidArgumentError(
            "there are roles on PostgreSQL only: name a database, --url postgresql://host/database"
        )
    _need_asyncpg()
    from windlass.stores.postgres.schema import privileges  # noqa: PLC0415 - only what is named

    return privileges.script()


async def checkup(
    url: str, *, clock: Clock | None = None, key: str | None = None
) -> list[Finding] | None:
    """What is wrong there, and how to mend it; None of a store that can say nothing of itself."""
    scheme = _parts(url)[0].scheme
    if scheme in HTTP:
        _need_httpx()
        from windlass.stores.http.checkup import checkup as ask  # noqa: PLC0415 - the same

        return await ask(url, store_key(key))
    if scheme not in POSTGRES:
        return None
    _need_asyncpg()
    from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - only what is named
    from windlass.stores.postgres.schema.checkup import checkup as look  # noqa: PLC0415 - the same

    return await look(PostgresConfig.of(url), clock)


def may_pass(error: StoreError) -> bool:
    """Whether waiting may mend it: a server is away, starts, or is full; nothing is set up wrongly.

    The driver's error tells: it has a SQLSTATE if PostgreSQL spoke, else it is an OSError.
    """
    state = getattr(error.__cause__, "sqlstate", None)
    return state[:2] in _PASSING if state else isinstance(error.__cause__, OSError)


def _need_asyncpg() -> None:
    if find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            "a PostgreSQL store needs the package asyncpg: pip install 'windlass[postgres]'"
        )


def _need_httpx() -> None:
    if find_spec("httpx") is None:
        raise InvalidArgumentError(
            "a store behind a server needs the package httpx: pip install 'windlass[http]'"
        )


def _parts(url: str) -> tuple[SplitResult, dict[str, str]]:
    """A URL and its options; raises when no store can be meant by it."""
    parts = split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(set(options) - _OPTIONS.get(parts.scheme, set(options))):
        names = ", ".join(unknown)
        raise wrong(url, f"has unknown options: {names} (a '?' in a file's name is written %3F)")
    return parts, options


def _file(url: str, parts: SplitResult) -> str:
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path.strip("/"):
        raise wrong(
            url,
            "names no file: write sqlite:///file.db (relative, three slashes) "
            "or sqlite:////path/file.db (absolute, four)",
        )
    if CONTROL.search(path):
        raise wrong(url, "holds a control character")
    return path
