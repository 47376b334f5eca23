"""The contract, kept several ways. `open_store` names them; nothing else needs to."""

from __future__ import annotations

from windlass.stores.checkup import Finding, Verdict
from windlass.stores.open import (
    checkup,
    file_of,
    may_pass,
    migration_script,
    open_store,
    roles_script,
)
from windlass.stores.urls import public_url

__all__ = [
    "Finding",
    "Verdict",
    "checkup",
    "file_of",
    "may_pass",
    "migration_script",
    "open_store",
    "public_url",
    "roles_script",
]
