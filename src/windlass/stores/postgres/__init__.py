"""PostgreSQL store: one database for workers on many machines."""

from __future__ import annotations

from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.store import PostgresStore

__all__ = ["PostgresConfig", "PostgresStore"]
