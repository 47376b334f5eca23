"""The stores that a storm can run on. Imports no Windlass code.

This package holds all code specific to one kind of store. BASES lists the kinds.
"""

from __future__ import annotations

from benchmarks.chaos.bases.base import Base, Row, Tables
from benchmarks.chaos.bases.postgres import Postgres
from benchmarks.chaos.bases.sqlite import Sqlite

__all__ = ["BASES", "Base", "Postgres", "Row", "Sqlite", "Tables"]

BASES: dict[str, Base] = {"sqlite": Sqlite(), "postgresql": Postgres()}
