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
    (disk / "lasting").mkdir()
    problems: list[str] = []
    yield problems
    if not problems and _replayed(disk)[1] != _current_files(directory):
        problems.append("the journal of the disk does not reproduce its content")
    problems += [
        f"after a power cut: {problem}"
        for line in ledger.read(directory, "disk")
        for problem in line["broken"]
    ]


def cut(fleet: Fleet, _: float, *, harsh: bool = False) -> None:
    """Stop all, keep what the disk has, start again from that. If `harsh`, nothing unsynced."""
    release_more_jobs(fleet)
    living = [one for one in (*fleet.all_processes, *fleet.stopping) if one.is_alive()]
    _stop_at_once([process.pid for process in living if process.pid is not None])
    for process in living:
        process.kill()
    for process in living:
        process.join(TIMEOUT)
    nothing, everything, part = _replayed(fleet.directory / "disk", fleet.random.getrandbits(32))
    image = nothing if harsh else fleet.random.choice((nothing, everything, part, part))
    _replace_files(fleet.directory, image)
    ledger.note("disk", fleet.directory, broken=_broken(fleet.directory, image))
    fleet.record_fault(CUT)


def _stop_at_once(pids: list[int]) -> None:
    """Stop all processes before killing any: a dead one loses its locks."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + TIMEOUT
    while not all(_stands_still(pid) for pid in pids):
        if time.monotonic() > deadline:
            raise TimeoutError("a process cannot be stopped")
        time.sleep(0.001)


def _stands_still(pid: int) -> bool:
    try:
        threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread just ended: retry
    return all(stat.rpartition(")")[2].split()[0] in _ENDED for stat in threads)


def _replayed(disk: Path, seed: int = 0) -> Sequence[DiskImage]:
    """What the disk could hold by now: nothing unsynced, all of it, or a part."""
    files = {path.name: path.read_bytes() for path in (disk / "lasting").iterdir()}
    return list(Replay(files).follow(read(disk / "journal")).images(seed, 1))


def _current_files(directory: Path) -> DiskImage:
    files = {path.name: path.read_bytes() for path in directory.glob(f"{BASE}*")}
    files.pop(f"{BASE}-shm", None)
    return files


def _replace_files(directory: Path, image: DiskImage) -> None:
    """From here on this is what the disk has; the memory that processes shared is no more."""
    for path in (*directory.glob(f"{BASE}*"), *(directory / "disk" / "lasting").iterdir()):
        path.unlink()
    write_image(image, directory)
    write_image(image, directory / "disk" / "lasting")
    os.truncate(directory / "disk" / "journal", 0)


def _broken(directory: Path, image: DiskImage) -> list[str]:
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
