"""Checks that the optional driver of a store is installed."""

from __future__ import annotations

from importlib.util import find_spec

from windlass.core.errors import InvalidArgumentError


def require_asyncpg() -> None:
    if find_spec("asyncpg") is None:
        raise InvalidArgumentError(
            "a PostgreSQL store needs the package asyncpg: pip install 'windlass[postgres]'"
        )


def require_httpx() -> None:
    if find_spec("httpx") is None:
        raise InvalidArgumentError(
            "an HTTP store needs the package httpx: pip install 'windlass[http]'"
        )
