"""SQLite store: one file, for production on one machine."""

from __future__ import annotations

from windlass.stores.sqlite.config import SqliteConfig
from windlass.stores.sqlite.store import SqliteStore
from windlass.stores.sqlite.user_transaction import SqliteTransaction

__all__ = ["SqliteConfig", "SqliteStore", "SqliteTransaction"]
