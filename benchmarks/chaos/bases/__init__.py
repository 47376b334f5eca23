"""The stores that a storm can run on. Imports no Windlass code.

All that the laboratory knows of one sort of store is here. Another one joins by an entry in BASES.
"""

from __future__ import annotations

from benchmarks.chaos.bases.base import Base, Row, Tables
from benchmarks.chaos.bases.postgres import Postgres
from benchmarks.chaos.bases.sqlite import Sqlite

__all__ = ["BASES", "Base", "Postgres", "Row", "Sqlite", "Tables"]

BASES: dict[str, Base] = {"sqlite": Sqlite(), "postgresql": Postgres()}
