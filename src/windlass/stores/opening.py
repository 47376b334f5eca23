"""From a URL to a store, importing only the driver that the URL names."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from windlass.core.clock import Clock
from windlass.core.errors import InvalidArgumentError
from windlass.store import Store

DEFAULT_URL = "sqlite:///windlass.db"
_FORMS = "memory: or sqlite:///path/to/file.db"


def open_store(url: str = DEFAULT_URL, *, clock: Clock | None = None) -> Store:
    """Open what the URL names. `sqlite:///x.db` is relative, `sqlite:////var/x.db` absolute."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    match parts.scheme:
        case "memory":
            from windlass.stores.memory import MemoryStore  # noqa: PLC0415 - only what is named

            _nothing_left(url, options)
            return MemoryStore(clock=clock)
        case "sqlite":
            from windlass.stores.sqlite import SqliteStore  # noqa: PLC0415 - only what is named

            if parts.netloc or not parts.path.strip("/"):
                raise InvalidArgumentError(
                    f"{url!r} names no file: write sqlite:///file.db (relative, three slashes) "
                    "or sqlite:////path/file.db (absolute, four)"
                )
            durability = options.pop("durability", "full")
            _nothing_left(url, options)
            return SqliteStore(
                unquote(parts.path.removeprefix("/")), durability=durability, clock=clock
            )
        case scheme:
            known = f"expected {_FORMS}"
            problem = f"has the unknown scheme {scheme!r}" if scheme else "has no scheme"
            raise InvalidArgumentError(f"the store URL {url!r} {problem}; {known}")


def _nothing_left(url: str, options: dict[str, str]) -> None:
    if options:
        raise InvalidArgumentError(
            f"the store URL {url!r} has unknown options: {', '.join(sorted(options))}"
        )
