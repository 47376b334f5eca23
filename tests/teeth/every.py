"""All mistakes that are planted in the process of a test."""

from __future__ import annotations

from tests.teeth import (
    flows,
    limits,
    postgres,
    server,
    settling,
    simulated,
    sql,
    stores,
    tasks,
    ticking,
    worker,
)
from tests.teeth.mistake import mistakes_in

MISTAKES = mistakes_in(
    worker, settling, tasks, stores, sql, postgres, simulated, ticking, flows, limits, server
)
