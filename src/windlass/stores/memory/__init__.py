"""The executable specification: the contract kept by dictionaries under one lock.

For tests, and as the twin that other stores are compared with. Nothing here is durable.
"""

from __future__ import annotations

from windlass.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
