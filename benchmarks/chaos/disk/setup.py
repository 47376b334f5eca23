"""Setup of the disk of a storm, in the driver and in each process."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks.chaos.disk.faults import DeadlyDisk, FailingDisk, FullDisk
from benchmarks.chaos.disk.journal import JournaledDisk
from benchmarks.chaos.disk.seam import Disk, Seam
from windlass.stores.sqlite import connection

BASE = "jobs.db"
Sort: TypeAlias = Literal["journaled", "lying", "full", "failing", "deadly", "plain"]
PAGES = 60  # between checkpoints, so that faults meet many of them


def prepare(
    place: Path,
    sort: Sort,
    *,
    durability: str = "full",
    pages: int = PAGES,
    directory: str = "",
) -> Path:
    """Write the configuration of the disk, and the directory of the jobs on it.

    `pages` is the number of pages between two checkpoints.
    """
    disk = place / "disk"
    disk.mkdir()
    facts = {"sort": sort, "durability": durability, "pages": pages, "directory": directory}
    (disk / "plan.json").write_text(json.dumps(facts))
    return disk


@lru_cache(maxsize=1)  # what C calls must not be collected
def enter(place: Path) -> Seam:
    """Lead SQLite through the disk of this place, from now on."""
    facts: dict[str, Any] = json.loads((place / "disk" / "plan.json").read_text())
    directory = place / facts["directory"]
    os.environ["WINDLASS_URL"] = f"sqlite:///{directory / BASE}?durability={facts['durability']}"
    pages: int = facts["pages"]
    # A restarted WAL keeps no space: it must grow, and that can fail.
    vars(connection).update(CHECKPOINT_PAGES=pages, WAL_PAGES=4 * pages, WAL_LIMIT=0)
    return Seam(_disk(facts["sort"], place / "disk", directory))


def _disk(sort: Sort, disk: Path, directory: Path) -> Disk:
    match sort:
        case "journaled" | "lying":
            return JournaledDisk(disk / "journal", honors_sync=sort == "journaled")
        case "full":
            return FullDisk(disk, directory)
        case "failing":
            return FailingDisk(disk)
        case "deadly":
            return DeadlyDisk(disk)
        case "plain":
            return Disk()
