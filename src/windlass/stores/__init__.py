"""The contract, kept several ways. `open_store` names them; nothing else needs to."""

from __future__ import annotations

from windlass.stores.finding import Finding, Verdict
from windlass.stores.opening import (
    checkup,
    file_of,
    migration_script,
    open_store,
    public_url,
    roles_script,
)

__all__ = [
    "Finding",
    "Verdict",
    "checkup",
    "file_of",
    "migration_script",
    "open_store",
    "public_url",
    "roles_script",
]
