"""Activity during a disk fault, and a check that every process survived it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.chaos.ledger import read
from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.processes.job_quota import allowed
from benchmarks.chaos.processes.producer import BATCH

_MOMENT = 0.2  # seconds


def release_more_jobs(fleet: Fleet) -> None:
    """Let the producers continue, so that the next fault meets all kinds of calls."""
    fleet.allow(allowed(fleet.directory) + 2 * BATCH)
    time.sleep(fleet.random.uniform(0, _MOMENT))


def all_survived(directory: Path) -> list[str]:
    """Return the problems: each process that died was replaced by another with its own log."""
    plan = json.loads((directory / "plan.json").read_text())
    wanted = {
        "worker": plan["workers"],
        "producer": len({line["producer"] for line in read(directory, "producer")}),
    }
    logs = {role: sorted((directory / "log").glob(f"{role}-*.log")) for role in wanted}
    return [
        f"{len(logs[role]) - number} of {number} {role}s died; see their logs"
        for role, number in wanted.items()
        if len(logs[role]) > number
    ]
