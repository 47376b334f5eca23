"""Configuration of the PostgreSQL store, parsed from its URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from windlass.core.errors import InvalidArgumentError
from windlass.stores.urls import public_url, split


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    """Configuration of a PostgreSQL store, from its URL.

    statement_cache_size: 0 for a pooler in transaction mode (pgbouncer): no prepared statements,
        no session settings
    pool: maximum number of connections per handle
    timeout: seconds that a statement may take
    listen: host:port (or socket directory) for LISTEN when the URL names a pooler, or "off"
    migrate: create and update the schema automatically, for development; in production run
        `windlass migrate`
    """

    url: str = field(repr=False)  # it may contain a password
    statement_cache_size: int = 100
    pool: int = 5
    timeout: float = 30.0
    connect_timeout: float = 10.0
    listen: str = ""
    migrate: bool = False

    def __post_init__(self) -> None:
        for name in ("pool", "timeout", "connect_timeout"):
            value = getattr(self, name)
            if not value > 0:
                raise InvalidArgumentError(f"{name}={value:g} in the store URL must be positive")

    @staticmethod
    def of(url: str) -> PostgresConfig:
        """Parse a URL; options unknown here are left in it for the driver."""
        parts = split(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        own = {name: text for name, text in options if name in _OPTIONS}
        driver_options = [(name, text) for name, text in options if name not in _OPTIONS]
        try:
            values = {name: _OPTIONS[name](text) for name, text in own.items()}
        except (ValueError, KeyError):
            valid = ", ".join(_OPTIONS)
            raise InvalidArgumentError(
                f"invalid option in the store URL: {urlencode(own)} (valid options: {valid})"
            ) from None
        bare = urlunsplit(parts._replace(query=urlencode(driver_options)))
        return PostgresConfig(url=bare, **cast("dict[str, Any]", values))

    @property
    def listening(self) -> PostgresConfig | None:
        """Return the configuration of the LISTEN connection; None to poll only."""
        if not self.listen:
            return self
        if self.listen == "off":
            return None
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        options = [pair for pair in parse_qsl(parts.query) if pair[0] not in {"host", "port"}]
        address = self.listen
        if address.startswith("/"):
            options.append(("host", address))
            address = ""
        direct = parts._replace(netloc=f"{user}{at}{address}", query=urlencode(options))
        return replace(self, url=urlunsplit(direct), statement_cache_size=100)

    @property
    def where(self) -> str:
        """Return the URL for messages, without the password."""
        shown, _, options = public_url(self.url).partition("?")
        authority, slash, database = shown.partition("://")[2].partition("/")
        user, at, address = authority.replace(":***", "").rpartition("@")
        host = address or dict(parse_qsl(options)).get("host", "")
        return f"postgresql://{user}{at}{host}{slash}{database}"


_OPTIONS: dict[str, Callable[[str], object]] = {
    "statement_cache_size": int,
    "pool": int,
    "timeout": float,
    "connect_timeout": float,
    "listen": str,
    "migrate": {"true": True, "1": True, "false": False, "0": False}.__getitem__,
}
