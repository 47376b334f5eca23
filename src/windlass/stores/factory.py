"""Opens the store that a URL names, and imports only its driver."""

from __future__ import annotations

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError
from windlass.settings import store_key
from windlass.store import Store
from windlass.stores.driver_check import require_asyncpg, require_httpx
from windlass.stores.urls import HTTP, file_path, parse

DEFAULT_URL = "sqlite:///windlass.db"


def open_store(
    url: str = DEFAULT_URL, *, clock: Clock | None = None, key: str | None = None
) -> Store:
    """Open the store that the URL names.

    `sqlite:///x.db` is a relative path, `sqlite:////var/x.db` an absolute one. A server
    (`https://host`) is opened with `key`, or with the key in the settings.
    """
    parts, options = parse(url)
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

            path = file_path(url, parts)
            durability = options.get("durability", "full")
            return SqliteStore(path, durability=durability, clock=clock)
        case _:
            require_asyncpg()
            from windlass.stores.postgres import PostgresStore  # noqa: PLC0415 - lazy import

            return PostgresStore(url, clock=clock)


def _open_server(url: str, clock: Clock | None, key: str | None) -> Store:
    if clock is not None:
        raise InvalidArgumentError("clock does not apply to a server: it uses its own clock")
    require_httpx()
    from windlass.stores.http import HttpConfig, HttpStore  # noqa: PLC0415 - lazy import

    return HttpStore(HttpConfig(url=url, key=store_key(key)))
