"""Disks that fail while a switch is on: a file that the driver creates and removes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

import apsw

from benchmarks.chaos.disk.vfs_hooks import Disk, RealCall
from benchmarks.chaos.ledger import note

FULL, FAILING, KILLING = (
    "full",
    "failing",
    "deadly",
)  # the switches; two of them of one process each
# A commit has several writes and one sync. With these values, both fail about equally often.
_CHANCES = {"a write": 0.05, "a truncation": 0.3, "a sync": 0.3}


def switch(disk: Path, name: str, pid: int | None) -> Path:
    return disk / f"{name}-{pid}"


class FullDisk(Disk):
    """No file of the data directory grows while the switch exists."""

    def __init__(self, disk: Path, data_directory: Path) -> None:
        self._switch = disk / FULL
        self._data_directory = data_directory

    def write(self, name: str, data: bytes, offset: int, real_call: RealCall) -> int:
        end = offset + len(data)
        if self._switch.exists() and end > (self._data_directory / name).stat().st_size:
            return apsw.SQLITE_FULL
        return real_call()


class FailingDisk(Disk):
    """Writes, truncations and syncs of this process fail at random."""

    def __init__(self, disk: Path) -> None:
        self._switch = switch(disk, FAILING, os.getpid())
        self._storm_directory = disk.parent
        self._random = Random(os.getpid())

    def write(self, name: str, data: bytes, offset: int, real_call: RealCall) -> int:  # noqa: ARG002
        return apsw.SQLITE_IOERR_WRITE if self._fails("a write") else real_call()

    def truncate(self, name: str, size: int, real_call: RealCall) -> int:  # noqa: ARG002
        return apsw.SQLITE_IOERR_TRUNCATE if self._fails("a truncation") else real_call()

    def sync(self, name: str, real_call: RealCall) -> int:  # noqa: ARG002
        if not self._fails("a sync"):
            return real_call()
        if self._random.random() < 0.5:
            real_call()  # the data may have reached the disk in spite of the error
        return apsw.SQLITE_IOERR_FSYNC

    def _fails(self, what: str) -> bool:
        if not self._switch.exists() or self._random.random() >= _CHANCES[what]:
            return False
        note("driver", self._storm_directory, fault=f"EIO at {what}", pid=os.getpid())
        return True


class KillingDisk(Disk):
    """Kills its process at a sync; the switch has the number of the sync, and before or after."""

    def __init__(self, disk: Path) -> None:
        self._switch = switch(disk, KILLING, os.getpid())
        self._syncs = 0

    def sync(self, name: str, real_call: RealCall) -> int:  # noqa: ARG002
        if not self._switch.exists():
            return real_call()
        moment, _, number = self._switch.read_text().partition(" ")
        self._syncs += 1
        last = self._syncs >= int(number)
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        code = real_call()
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return code
