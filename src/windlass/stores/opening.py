"""From a URL to a store, importing only the driver that the URL names."""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError
from windlass.store import Store
from windlass.stores.finding import Finding

DEFAULT_URL = "sqlite:///windlass.db"
_FORMS = "memory: or sqlite:///path/to/file.db or postgresql://user@host/database"
_POSTGRES = ("postgresql", "postgres")
_PASSWORD = re.compile(r"(://[^:/@]*):.+@", re.DOTALL)
_OPTION = re.compile(r"(?<=password=)[^&]*", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def open_store(url: str = DEFAULT_URL, *, clock: Clock | None = None) -> Store:
    """Open what the URL names. `sqlite:///x.db` is relative, `sqlite:////var/x.db` absolute."""
    parts, options = _parts(url)
    match parts.scheme:
        case "memory":
            from windlass.stores.memory import MemoryStore  # noqa: PLC0415 - only what is named

            _nothing_left(url, options)
            return MemoryStore(clock=clock)
        case "sqlite":
            from windlass.stores.sqlite import SqliteStore  # noqa: PLC0415 - only what is named

            path = _file(url, parts)
            durability = options.pop("durability", "full")
            _nothing_left(url, options)
            return SqliteStore(path, durability=durability, clock=clock)
        case "postgresql" | "postgres":
            _need_asyncpg()
            from windlass.stores.postgres import PostgresStore  # noqa: PLC0415 - only what is named

            return PostgresStore(url, clock=clock)
        case scheme:
            known = f"expected {_FORMS}"
            problem = f"has the unknown scheme {scheme!r}" if scheme else "has no scheme"
            raise InvalidArgumentError(f"the store URL {public_url(url)!r} {problem}; {known}")


def file_of(url: str) -> Path | None:
    """The file that a SQLite URL names; None for every other sort of store."""
    parts, _ = _parts(url)
    return Path(_file(url, parts)).absolute() if parts.scheme == "sqlite" else None


def migration_script(url: str) -> str:
    """The SQL that `migrate` would run on what the URL names; empty when there is nothing to do."""
    if _parts(url)[0].scheme in _POSTGRES:
        _need_asyncpg()
        from windlass.stores.postgres import PostgresConfig, schema  # noqa: PLC0415 - the same

        return asyncio.run(schema.script(PostgresConfig.of(url)))
    path = file_of(url)
    if path is None:
        return ""
    from windlass.stores.sqlite import connection  # noqa: PLC0415 - only what is named

    return connection.script(path)


def roles_script(url: str) -> str:
    """The SQL that makes least-privilege roles for what the URL names."""
    if _parts(url)[0].scheme not in _POSTGRES:
        raise InvalidArgumentError(
            "there are roles on PostgreSQL only: name a database, --url postgresql://host/database"
        )
    _need_asyncpg()
    from windlass.stores.postgres import privileges  # noqa: PLC0415 - only what is named

    return privileges.script()


async def checkup(url: str, *, clock: Clock | None = None) -> list[Finding] | None:
    """What is wrong there, and how to mend it; None of a store that can say nothing of itself."""
    if _parts(url)[0].scheme not in _POSTGRES:
        return None
    _need_asyncpg()
    from windlass.stores.postgres import PostgresConfig  # noqa: PLC0415 - only what is named
    from windlass.stores.postgres.checkup import checkup as look  # noqa: PLC0415 - the same

    return await look(PostgresConfig.of(url), clock)


def public_url(url: str) -> str:
    """A URL as it may be shown to anybody: without its password, however wrong it is."""
    return _OPTION.sub("***", _PASSWORD.sub(r"\1:***@", url))


def _need_asyncpg() -> None:
    if find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            "a PostgreSQL store needs the package asyncpg: pip install 'windlass[postgres]'"
        )


def _parts(url: str) -> tuple[SplitResult, dict[str, str]]:
    """A URL and its options; what would be cut off without a word is refused."""
    if _CONTROL.search(url):
        raise InvalidArgumentError(f"the store URL {public_url(url)!r} holds a control character")
    parts = urlsplit(url)
    if "#" in url:
        raise InvalidArgumentError(
            f"the store URL {public_url(url)!r} holds a '#', which ends a URL; "
            "in a file's name, write %23"
        )
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True))


def _file(url: str, parts: SplitResult) -> str:
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path.strip("/"):
        raise InvalidArgumentError(
            f"{url!r} names no file: write sqlite:///file.db (relative, three slashes) "
            "or sqlite:////path/file.db (absolute, four)"
        )
    if _CONTROL.search(path):
        raise InvalidArgumentError(f"the store URL {public_url(url)!r} holds a control character")
    return path


def _nothing_left(url: str, options: dict[str, str]) -> None:
    if options:
        raise InvalidArgumentError(
            f"the store URL {url!r} has unknown options: {', '.join(sorted(options))} "
            "(a '?' in a file's name is written %3F)"
        )
