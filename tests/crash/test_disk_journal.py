"""The disk contents that a power cut leaves, computed from the journal."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from benchmarks.chaos.disk.journal import JournaledDisk, Replay, read

from windlass.testing.power_cut import DiskImage

OK = apsw.SQLITE_OK


def done() -> int:
    return OK


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def disk(path: Path) -> JournaledDisk:
    return JournaledDisk(path)


def contents_after_cut(path: Path, **files: bytes) -> tuple[DiskImage, DiskImage]:
    """Return the smallest and the largest content after a power cut."""
    least, most = Replay(files).apply_entries(read(path)).images(seed=0, parts=0)
    return least, most


def test_synced_data_survives_and_unsynced_data_may(disk: JournaledDisk, path: Path) -> None:
    disk.opened("a")
    disk.write("a", b"one", 0, done)
    disk.sync("a", done)
    disk.write("a", b"two", 3, done)
    assert contents_after_cut(path) == ({"a": b"one"}, {"a": b"onetwo"})


def test_a_write_that_is_made_during_a_sync_is_not_covered_by_it(
    disk: JournaledDisk, path: Path
) -> None:
    other = JournaledDisk(path)  # another process
    disk.write("a", b"one", 0, done)
    disk.sync("a", lambda: other.write("a", b"two", 3, done))
    assert contents_after_cut(path) == ({"a": b"one"}, {"a": b"onetwo"})


def test_a_sync_of_one_process_covers_what_another_wrote_before(
    disk: JournaledDisk, path: Path
) -> None:
    JournaledDisk(path).write("a", b"one", 0, done)
    disk.sync("a", done)
    assert contents_after_cut(path)[0] == {"a": b"one"}


def test_a_sync_covers_its_own_file_only(disk: JournaledDisk, path: Path) -> None:
    disk.write("a", b"one", 0, done)
    disk.write("b", b"two", 0, done)
    disk.sync("b", done)
    assert contents_after_cut(path)[0] == {"a": b"", "b": b"two"}


def test_a_failed_write_is_not_applied(disk: JournaledDisk, path: Path) -> None:
    disk.write("a", b"one", 0, done)
    disk.write("a", b"two", 0, lambda: apsw.SQLITE_IOERR_WRITE)
    disk.sync("a", lambda: apsw.SQLITE_IOERR_FSYNC)
    assert contents_after_cut(path) == ({}, {"a": b"one"})


def test_a_disk_that_ignores_syncs_has_synced_nothing(path: Path) -> None:
    disk = JournaledDisk(path, honors_sync=False)
    disk.write("a", b"one", 0, done)
    disk.sync("a", done)
    assert contents_after_cut(path, a=b"old") == ({"a": b"old"}, {"a": b"one"})


def test_an_unsynced_truncate_or_delete_may_be_lost(disk: JournaledDisk, path: Path) -> None:
    files = {"a": b"long", "b": b"gone", "c": b"gone"}
    disk.truncate("a", 2, done)
    disk.delete("b", False, done)
    assert contents_after_cut(path, **files) == (files, {"a": b"lo", "c": b"gone"})
    disk.delete("c", True, done)
    assert contents_after_cut(path, **files)[0] == {"a": b"long"}
    disk.sync("a", done)
    assert contents_after_cut(path, **files)[0] == {"a": b"lo"}


def test_a_recreated_file_has_no_old_content(disk: JournaledDisk, path: Path) -> None:
    disk.delete("a", True, done)
    disk.opened("a")
    disk.write("a", b"x", 1, done)
    disk.sync("a", done)
    assert contents_after_cut(path, a=b"old")[0] == {"a": b"\0x"}
