"""From a URL to a store, importing only the driver that the URL names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError
from windlass.store import Store

DEFAULT_URL = "sqlite:///windlass.db"
_FORMS = "memory: or sqlite:///path/to/file.db"
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
        case scheme:
            known = f"expected {_FORMS}"
            problem = f"has the unknown scheme {scheme!r}" if scheme else "has no scheme"
            raise InvalidArgumentError(f"the store URL {url!r} {problem}; {known}")


def file_of(url: str) -> Path | None:
    """The file that a SQLite URL names; None for every other sort of store."""
    parts, _ = _parts(url)
    return Path(_file(url, parts)).absolute() if parts.scheme == "sqlite" else None


def migration_script(url: str) -> str:
    """The SQL that `migrate` would run on what the URL names; empty when there is nothing to do."""
    path = file_of(url)
    if path is None:
        return ""
    from windlass.stores.sqlite import connection  # noqa: PLC0415 - only what is named

    return connection.script(path)


def _parts(url: str) -> tuple[SplitResult, dict[str, str]]:
    """A URL and its options; what would be cut off without a word is refused."""
    if _CONTROL.search(url):
        raise InvalidArgumentError(f"the store URL {url!r} holds a control character")
    parts = urlsplit(url)
    if "#" in url:
        raise InvalidArgumentError(
            f"the store URL {url!r} holds a '#', which ends a URL; in a file's name, write %23"
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
        raise InvalidArgumentError(f"the store URL {url!r} holds a control character")
    return path


def _nothing_left(url: str, options: dict[str, str]) -> None:
    if options:
        raise InvalidArgumentError(
            f"the store URL {url!r} has unknown options: {', '.join(sorted(options))} "
            "(a '?' in a file's name is written %3F)"
        )
