"""One SQLite file: embedded, and meant for production on one machine."""

from __future__ import annotations

from windlass.stores.sqlite.connection import SqliteConfig
from windlass.stores.sqlite.session import Session
from windlass.stores.sqlite.store import SqliteStore

__all__ = ["Session", "SqliteConfig", "SqliteStore"]
