"""All bugs that are planted in the process of a test."""

from __future__ import annotations

from tests.planted_bugs.bug import planted_bugs_in
from tests.planted_bugs.bugs import (
    flows,
    limits,
    postgres,
    schedules,
    server,
    settle,
    simulation,
    sqlite,
    stores,
    tasks,
    worker,
)

PLANTED_BUGS = planted_bugs_in(
    worker, settle, tasks, stores, sqlite, postgres, simulation, schedules, flows, limits, server
)
