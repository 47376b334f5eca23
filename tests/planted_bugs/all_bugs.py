"""All mistakes that are planted in the process of a test."""

from __future__ import annotations

from tests.planted_bugs.bug import mistakes_in
from tests.planted_bugs.bugs import (
    flows,
    limits,
    postgres,
    schedules,
    server,
    settle,
    simulation,
    sql,
    stores,
    tasks,
    worker,
)

MISTAKES = mistakes_in(
    worker, settle, tasks, stores, sql, postgres, simulation, schedules, flows, limits, server
)
