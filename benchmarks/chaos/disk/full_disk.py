"""A disk that is full for a while: a small mounted file system or, without root, simulated."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path

from benchmarks.chaos.disk.faults import FULL
from benchmarks.chaos.disk.liveness import all_survived, stir
from benchmarks.chaos.disk.setup import BASE, prepare
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.ledger import read

_SMALL = "small"
_ROOM, _ROOM_PER_JOB = 16 << 20, 8 << 10  # several times the required size
_PATIENCE, _TICK = 3.0, 0.02  # seconds
_PIECES = (1 << 20, 1 << 16, 1 << 12, 1)


@contextmanager
def small(place: Path, *, mount: bool = True) -> Iterator[list[str]]:
    """Jobs are kept on a disk of their own, and everything else is not."""
    directory = place / _SMALL
    directory.mkdir()
    mounted = mount and _mounted(directory)
    prepare(place, "plain" if mounted else "full", directory=_SMALL)
    (place / BASE).symlink_to(directory / BASE)  # read by the checker
    complaints: list[str] = []
    try:
        yield complaints
        for path in directory.glob(f"{BASE}*"):
            shutil.copyfile(path, place / f"{path.name}.kept")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", directory], check=True)
    (place / BASE).unlink()
    for path in place.glob(f"{BASE}*.kept"):
        path.rename(path.with_suffix(""))
    complaints += all_survived(place)
    unclear = [message for message in _refusals(place) if "is full" not in message]
    complaints += [f"a producer was refused, and not told why: {message}" for message in unclear]


def _mounted(directory: Path) -> bool:
    """Whether it is a file system of its own now: for that one must be root, and allowed to."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        return False
    jobs = json.loads((directory.parent / "plan.json").read_text())["jobs"]
    size = _ROOM + jobs * _ROOM_PER_JOB
    arguments = ["mount", "-t", "tmpfs", "-o", f"size={size}", "windlass-chaos", str(directory)]
    return subprocess.run(arguments, check=False, capture_output=True).returncode == 0


def fill(fleet: Fleet, _: float) -> None:
    """Fill the disk until a producer is refused, and a moment longer."""
    directory = fleet.place / _SMALL
    mounted = directory.is_mount()
    ballast = directory / "ballast" if mounted else fleet.place / "disk" / FULL
    deadline, before = time.monotonic() + _PATIENCE, len(_refusals(fleet.place))
    with ballast.open("wb", buffering=0) as file:
        if mounted:
            _stuff(file)
        fleet.struck("disk full (a tmpfs)" if mounted else "disk full (pretended)")
        stir(fleet)
        while not fleet.produced and time.monotonic() < deadline:
            if len(_refusals(fleet.place)) > before:
                break
            time.sleep(_TICK)
            if mounted:
                _stuff(file)  # again: SQLite frees space when it restarts its WAL
    time.sleep(fleet.random.uniform(0.2, 1.0))
    ballast.unlink()


def _stuff(file: RawIOBase) -> None:
    for size in _PIECES:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(size))


def _refusals(place: Path) -> list[str]:
    return [line["refused"] for line in read(place, "producer") if "refused" in line]
