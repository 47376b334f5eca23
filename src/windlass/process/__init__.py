"""Child processes: started, spoken with, kept warm, never left behind. Knows nothing of jobs."""

from __future__ import annotations

from windlass.process.import_path import Address, address_of, find, holder, importable
from windlass.process.parent import Parent, Stopped
from windlass.process.pool import Pool
from windlass.process.spawn import Process, ProcessDiedError

__all__ = [
    "Address",
    "Parent",
    "Pool",
    "Process",
    "ProcessDiedError",
    "Stopped",
    "address_of",
    "find",
    "holder",
    "importable",
]
