"""Implementations of the store contract. `open_store` picks one by URL."""

from __future__ import annotations

from windlass.stores.admin import checkup, migration_script, roles_script
from windlass.stores.checkup_finding import Finding, Verdict
from windlass.stores.factory import open_store
from windlass.stores.transient_errors import is_transient
from windlass.stores.urls import public_url, sqlite_path

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
