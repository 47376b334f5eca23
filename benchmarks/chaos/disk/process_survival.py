"""Check that every process survived the disk faults, and activity during them."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.chaos.ledger import read
from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.processes.job_quota import allowed
from benchmarks.chaos.processes.producer import BATCH

_MAX_DELAY = 0.2  # seconds


def release_more_jobs(fleet: Fleet) -> None:
    """Let the producers continue, so that the next fault interrupts all kinds of calls."""
    fleet.allow(allowed(fleet.directory) + 2 * BATCH)
    time.sleep(fleet.random.uniform(0, _MAX_DELAY))


def died_processes(directory: Path) -> list[str]:
    """Return a problem per role with more logs than processes: a replacement has its own log."""
    plan = json.loads((directory / "plan.json").read_text())
    expected = {
        "worker": plan["workers"],
        "producer": len({line["producer"] for line in read(directory, "producer")}),
    }
    logs = {role: sorted((directory / "log").glob(f"{role}-*.log")) for role in expected}
    return [
        f"{len(logs[role]) - number} of {number} {role}s died; see their logs"
        for role, number in expected.items()
        if len(logs[role]) > number
    ]
