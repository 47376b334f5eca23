"""Implementations of the store contract. `open_store` picks one by URL."""

from __future__ import annotations

from windlass.stores.checkup import Finding, Verdict
from windlass.stores.open import (
    checkup,
    is_transient,
    migration_script,
    open_store,
    roles_script,
    sqlite_path,
)
from windlass.stores.urls import public_url

__all__ = [
    "Finding",
    "Verdict",
    "checkup",
    "is_transient",
    "migration_script",
    "open_store",
    "public_url",
    "roles_script",
    "sqlite_path",
]
