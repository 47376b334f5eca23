"""The contract, kept several ways. `open_store` names them; nothing else needs to."""

from __future__ import annotations

from windlass.stores.opening import file_of, migration_script, open_store

__all__ = ["file_of", "migration_script", "open_store"]
