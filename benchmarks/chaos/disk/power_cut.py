"""Power cuts: all processes stop at once, and the files get a possible content of the disk.

It contains all synced data and any part of the rest, torn at sectors, chosen by the seed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from benchmarks.chaos import ledger
from benchmarks.chaos.disk.disk_config import BASE, PAGES, DiskKind, prepare
from benchmarks.chaos.disk.journal import Replay, read
from benchmarks.chaos.disk.process_survival import release_more_jobs
from benchmarks.chaos.processes.fleet import TIMEOUT, Fleet
from windlass.testing.power_cut import DiskImage, write_image

CUT = "power cut"
_ENDED = frozenset("TtZX")  # kernel states of stopped and dead processes


@contextmanager
def journaled_disk(
    directory: Path, *, kind: DiskKind = "journaled", durability: str = "full", pages: int = PAGES
) -> Iterator[list[str]]:
    disk = prepare(directory, kind, durability=durability, pages=pages)
    (disk / "synced").mkdir()
    problems: list[str] = []
    yield problems
    if not problems and _replayed(disk)[1] != _current_files(directory):
        problems.append("the journal of the disk does not reproduce its content")
    problems += [
        f"after a power cut: {problem}"
        for line in ledger.read(directory, "disk")
        for problem in line["errors"]
    ]


def cut(fleet: Fleet, _: float, *, harsh: bool = False) -> None:
    """Stop all processes and restore a disk image; if `harsh`, one without unsynced data."""
    release_more_jobs(fleet)
    living = [process for process in (*fleet.all_processes, *fleet.stopping) if process.is_alive()]
    _stop_at_once([process.pid for process in living if process.pid is not None])
    for process in living:
        process.kill()
    for process in living:
        process.join(TIMEOUT)
    nothing, everything, part = _replayed(fleet.directory / "disk", fleet.random.getrandbits(32))
    image = nothing if harsh else fleet.random.choice((nothing, everything, part, part))
    _replace_files(fleet.directory, image)
    ledger.note("disk", fleet.directory, errors=_integrity_errors(fleet.directory, image))
    fleet.record_fault(CUT)


def _stop_at_once(pids: list[int]) -> None:
    """Stop all processes before killing any: a dead one loses its locks."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + TIMEOUT
    while not all(_is_stopped(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise TimeoutError("a process cannot be stopped")
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    try:
        threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread just ended; the caller retries
    return all(stat.rpartition(")")[2].split()[0] in _ENDED for stat in threads)


def _replayed(disk: Path, seed: int = 0) -> Sequence[DiskImage]:
    """Return possible contents of the disk: without unsynced data, with all, and with a part."""
    files = {path.name: path.read_bytes() for path in (disk / "synced").iterdir()}
    return list(Replay(files).apply_entries(read(disk / "journal")).images(seed, 1))


def _current_files(directory: Path) -> DiskImage:
    files = {path.name: path.read_bytes() for path in directory.glob(f"{BASE}*")}
    files.pop(f"{BASE}-shm", None)
    return files


def _replace_files(directory: Path, image: DiskImage) -> None:
    """Replace the files by the image; the shared-memory file is gone."""
    for path in (*directory.glob(f"{BASE}*"), *(directory / "disk" / "synced").iterdir()):
        path.unlink()
    write_image(image, directory)
    write_image(image, directory / "disk" / "synced")
    os.truncate(directory / "disk" / "journal", 0)


def _integrity_errors(directory: Path, image: DiskImage) -> list[str]:
    """Return the integrity errors of a copy: opening the files themselves would repair them."""
    copy = directory / "disk" / "copy"
    copy.mkdir()
    write_image(image, copy)
    try:
        with closing(sqlite3.connect(copy / BASE)) as connection:
            message = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        message = [str(error)]
    finally:
        shutil.rmtree(copy)
    return [] if message == ["ok"] else message
