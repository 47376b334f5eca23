"""Configuration of the disk of a storm: written by the driver, installed in each process."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks.chaos.disk.faulty_disks import FailingDisk, FullDisk, KillingDisk
from benchmarks.chaos.disk.journal import JournaledDisk
from benchmarks.chaos.disk.vfs_hooks import Disk, VfsHooks
from windlass.stores.sqlite import connection

BASE = "jobs.db"
DiskKind: TypeAlias = Literal["journaled", "lying", "full", "failing", "deadly", "plain"]
PAGES = 60  # between checkpoints, so that faults meet many of them


def prepare(
    directory: Path,
    kind: DiskKind,
    *,
    durability: str = "full",
    pages: int = PAGES,
    subdirectory: str = "",
) -> Path:
    """Write the configuration of the disk, and the directory of the jobs on it.

    `pages` is the number of pages between two checkpoints.
    """
    disk = directory / "disk"
    disk.mkdir()
    facts = {"kind": kind, "durability": durability, "pages": pages, "subdirectory": subdirectory}
    (disk / "plan.json").write_text(json.dumps(facts))
    return disk


@lru_cache(maxsize=1)  # keeps the functions that C calls
def install_disk(directory: Path) -> VfsHooks:
    """Install the configured disk for all later SQLite connections of this process."""
    facts: dict[str, Any] = json.loads((directory / "disk" / "plan.json").read_text())
    data_directory = directory / facts["subdirectory"]
    os.environ["WINDLASS_URL"] = (
        f"sqlite:///{data_directory / BASE}?durability={facts['durability']}"
    )
    pages: int = facts["pages"]
    # A restarted WAL keeps no space: it must grow, and that can fail.
    vars(connection).update(CHECKPOINT_PAGES=pages, WAL_PAGES=4 * pages, WAL_LIMIT=0)
    return VfsHooks(_disk(facts["kind"], directory / "disk", data_directory))


def _disk(kind: DiskKind, disk: Path, data_directory: Path) -> Disk:
    match kind:
        case "journaled" | "lying":
            return JournaledDisk(disk / "journal", honors_sync=kind == "journaled")
        case "full":
            return FullDisk(disk, data_directory)
        case "failing":
            return FailingDisk(disk)
        case "deadly":
            return KillingDisk(disk)
        case "plain":
            return Disk()
