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

from benchmarks.chaos.disk.disk_config import BASE, prepare
from benchmarks.chaos.disk.faulty_disks import FULL
from benchmarks.chaos.disk.process_survival import died_processes, release_more_jobs
from benchmarks.chaos.ledger import read
from benchmarks.chaos.processes.fleet import Fleet

_SMALL = "small"
_SIZE, _SIZE_PER_JOB = 16 << 20, 8 << 10  # several times the required size
_FILL_TIMEOUT, _CHECK_INTERVAL = 3.0, 0.02  # seconds
_BLOCK_SIZES = (1 << 20, 1 << 16, 1 << 12, 1)


@contextmanager
def small_disk(directory: Path, *, mount: bool = True) -> Iterator[list[str]]:
    """Keep the database, and nothing else, on a small disk."""
    data_directory = directory / _SMALL
    data_directory.mkdir()
    mounted = mount and _mount(data_directory)
    prepare(directory, "plain" if mounted else "full", subdirectory=_SMALL)
    (directory / BASE).symlink_to(data_directory / BASE)  # read by the checker
    problems: list[str] = []
    try:
        yield problems
        for path in data_directory.glob(f"{BASE}*"):
            shutil.copyfile(path, directory / f"{path.name}.kept")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", data_directory], check=True)
    (directory / BASE).unlink()
    for path in directory.glob(f"{BASE}*.kept"):
        path.rename(path.with_suffix(""))
    problems += died_processes(directory)
    unclear = [message for message in _failed_calls(directory) if "is full" not in message]
    problems += [f"a producer received an unclear error: {message}" for message in unclear]


def _mount(data_directory: Path) -> bool:
    """Mount a small file system; return False if this process may not."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        return False
    jobs = json.loads((data_directory.parent / "plan.json").read_text())["jobs"]
    size = _SIZE + jobs * _SIZE_PER_JOB
    arguments = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={size}",
        "windlass-chaos",
        str(data_directory),
    ]
    return subprocess.run(arguments, check=False, capture_output=True).returncode == 0


def fill(fleet: Fleet, _: float) -> None:
    """Fill the disk until a call of a producer fails, and keep it full for a moment."""
    data_directory = fleet.directory / _SMALL
    mounted = data_directory.is_mount()
    ballast = data_directory / "ballast" if mounted else fleet.directory / "disk" / FULL
    deadline, before = time.monotonic() + _FILL_TIMEOUT, len(_failed_calls(fleet.directory))
    with ballast.open("wb", buffering=0) as file:
        if mounted:
            _fill_file(file)
        fleet.record_fault("disk full (a tmpfs)" if mounted else "disk full (simulated)")
        release_more_jobs(fleet)
        while not fleet.produced and time.monotonic() < deadline:
            if len(_failed_calls(fleet.directory)) > before:
                break
            time.sleep(_CHECK_INTERVAL)
            if mounted:
                _fill_file(file)  # again: SQLite frees space when it restarts its WAL
    time.sleep(fleet.random.uniform(0.2, 1.0))
    ballast.unlink()


def _fill_file(file: RawIOBase) -> None:
    for size in _BLOCK_SIZES:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(size))


def _failed_calls(directory: Path) -> list[str]:
    return [line["refused"] for line in read(directory, "producer") if "refused" in line]
