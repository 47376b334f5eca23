"""Processes that are at work when the disk fails, and whether they lived through it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.ledger import read
from benchmarks.chaos.processes import BATCH, allowed

_MOMENT = 0.2  # seconds


def stir(fleet: Fleet) -> None:
    """Let the producers go on, so that the fault that comes meets calls of all sorts."""
    fleet.allow(allowed(fleet.place) + 2 * BATCH)
    time.sleep(fleet.random.uniform(0, _MOMENT))


def all_lived(place: Path) -> list[str]:
    """What is wrong if not: each that died was replaced by another, which has a log of its own."""
    plan = json.loads((place / "plan.json").read_text())
    wanted = {
        "worker": plan["workers"],
        "producer": len({line["producer"] for line in read(place, "producer")}),
    }
    logs = {role: sorted((place / "log").glob(f"{role}-*.log")) for role in wanted}
    return [
        f"of {number} {role}s that should live on {len(logs[role]) - number} died; see their logs"
        for role, number in wanted.items()
        if len(logs[role]) > number
    ]
