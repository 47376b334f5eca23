"""Child processes: spawning, messaging, warm pools, cleanup. Independent of jobs."""

from __future__ import annotations

from windlass.process.child_process import ChildProcess, ProcessDiedError
from windlass.process.import_path import (
    ImportPath,
    find_holder,
    import_path_of,
    import_problem,
    resolve,
)
from windlass.process.parent_connection import ParentConnection, StopRequested
from windlass.process.pool import ChildPool

__all__ = [
    "ChildPool",
    "ChildProcess",
    "ImportPath",
    "ParentConnection",
    "ProcessDiedError",
    "StopRequested",
    "find_holder",
    "import_path_of",
    "import_problem",
    "resolve",
]
