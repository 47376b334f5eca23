"""In-memory store: the executable specification of the store contract.

Keeps dictionaries under one lock, not durable. Used for tests, and as the reference that other
stores are compared with.
"""

from __future__ import annotations

from windlass.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
