"""The stores that a storm can run on. Imports no Windlass code.

This package holds all code specific to one kind of store. STORES lists the kinds.
"""

from __future__ import annotations

from benchmarks.chaos.stores.postgres import PostgresStorage
from benchmarks.chaos.stores.sqlite import SqliteStorage
from benchmarks.chaos.stores.tested_store import Row, Tables, TestedStore

__all__ = ["STORES", "PostgresStorage", "Row", "SqliteStorage", "Tables", "TestedStore"]

STORES: dict[str, TestedStore] = {"sqlite": SqliteStorage(), "postgresql": PostgresStorage()}
