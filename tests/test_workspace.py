"""Workspaces: creation, retention and removal, which touches nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windlass.core.errors import ConfigurationError
from windlass.core.ids import uuid7
from windlass.workspace import FoundWorkspace, WorkspaceKind, Workspaces

DAY = 86_400.0


@pytest.fixture
def spaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "data")


def test_a_workspace_is_created_on_first_use_and_found_again(spaces: Workspaces) -> None:
    job = uuid7()
    first = spaces.path(WorkspaceKind.TEMP, job)
    (first / "frame.jpg").write_bytes(b"x")

    assert first == spaces.data / "temp" / str(job)
    assert (spaces.path(WorkspaceKind.TEMP, job) / "frame.jpg").exists()
    assert first.stat().st_mode & 0o777 == 0o700


def test_both_directories_are_removed_with_their_content(spaces: Workspaces) -> None:
    job, other = uuid7(), uuid7()
    for kind in WorkspaceKind:
        deep = spaces.path(kind, job) / "a" / "b"
        deep.mkdir(parents=True)
        (deep / "file").write_text("x")
        spaces.path(kind, other)

    assert spaces.remove(job) == []

    assert not any((spaces.data / kind / str(job)).exists() for kind in WorkspaceKind)
    assert all((spaces.data / kind / str(other)).exists() for kind in WorkspaceKind)


def test_removing_a_missing_workspace_is_harmless(spaces: Workspaces) -> None:
    assert spaces.remove(uuid7()) == []
    spaces.path(WorkspaceKind.TEMP, uuid7())
    assert spaces.remove(uuid7()) == []


def test_links_inside_are_removed_and_not_followed(spaces: Workspaces, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    job = uuid7()
    place = spaces.path(WorkspaceKind.TEMP, job)
    (place / "dir").symlink_to(precious)
    (place / "file").symlink_to(precious / "file")

    assert spaces.remove(job) == []

    assert not place.exists()
    assert (precious / "file").read_text() == "keep me"


def test_a_workspace_that_is_itself_a_link_is_not_followed(
    spaces: Workspaces, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    job = uuid7()
    spaces.path(WorkspaceKind.TEMP, uuid7())
    (spaces.data / "temp" / str(job)).symlink_to(precious)

    assert len(spaces.remove(job)) == 1

    assert (precious / "file").read_text() == "keep me"
    with pytest.raises(ConfigurationError, match="not a directory"):
        spaces.path(WorkspaceKind.TEMP, job)


def test_a_root_that_is_a_link_is_refused(spaces: Workspaces, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    spaces.data.mkdir()
    (spaces.data / "temp").symlink_to(elsewhere)

    with pytest.raises(ConfigurationError, match="must be a directory"):
        spaces.path(WorkspaceKind.TEMP, uuid7())
    with pytest.raises(ConfigurationError, match="must be a directory"):
        spaces.remove(uuid7())


def test_a_failed_removal_is_a_warning(spaces: Workspaces, monkeypatch: pytest.MonkeyPatch) -> None:
    job = uuid7()
    (spaces.path(WorkspaceKind.TEMP, job) / "stuck").write_text("x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "unlink", refuse)

    warnings = spaces.remove(job)

    assert any("stuck" in warning and "not yours" in warning for warning in warnings)


def test_only_directories_named_by_a_uuid_are_listed(spaces: Workspaces) -> None:
    job = uuid7()
    place = spaces.path(WorkspaceKind.PROXY, job)
    for name in ("..data", "not-a-uuid", str(uuid7()).upper(), uuid7().hex):
        (spaces.data / "proxy" / name).mkdir()
    (spaces.data / "proxy" / str(uuid7())).write_text("a file")
    now = time.time()
    os.utime(place, (now - 3 * DAY, now - 3 * DAY))

    [found] = spaces.list(now)

    assert (found.kind, found.lineage) == (WorkspaceKind.PROXY, job)
    assert found.age == pytest.approx(3 * DAY, abs=60)


@pytest.mark.parametrize(
    ("kind", "hours", "old"),
    [
        (WorkspaceKind.TEMP, 23.9, False),
        (WorkspaceKind.TEMP, 24, True),
        (WorkspaceKind.PROXY, 47, False),
        (WorkspaceKind.PROXY, 48, True),
    ],
)
def test_temp_directories_are_orphans_after_one_day_and_proxies_after_two(
    kind: WorkspaceKind, hours: float, old: bool
) -> None:
    assert FoundWorkspace(kind, uuid7(), hours * 3600).old is old


REPLACER = """
import os, sys
place, precious = sys.argv[1:]
print("ready", flush=True)
while True:
    try:
        os.rename(place, place + ".aside")
        os.symlink(precious, place)
    except OSError:
        pass
    try:
        os.unlink(place)
    except OSError:
        pass
    try:
        os.rename(place + ".aside", place)
    except OSError:
        pass
"""


def test_removal_follows_no_link_that_replaces_a_directory_in_a_race(
    spaces: Workspaces, tmp_path: Path
) -> None:
    """Another process continuously replaces a directory of the workspace by a link."""
    precious = tmp_path / "precious"
    precious.mkdir()
    kept = [precious / f"file-{n}" for n in range(20)]
    for file in kept:
        file.write_text("keep me")
    for _ in range(60):
        job = uuid7()
        victim = spaces.path(WorkspaceKind.TEMP, job) / "victim"
        victim.mkdir()
        for n in range(50):
            (victim / f"file-{n}").write_text("x")
        racer = subprocess.Popen(
            [sys.executable, "-c", REPLACER, str(victim), str(precious)], stdout=subprocess.PIPE
        )
        try:
            assert racer.stdout is not None
            racer.stdout.readline()
            for _ in range(20):
                spaces.remove(job)
        finally:
            racer.kill()
            racer.communicate()
        assert all(file.read_text() == "keep me" for file in kept)
        assert not any(path.is_symlink() for path in precious.iterdir())


def test_removal_follows_no_link_that_replaces_a_directory_being_emptied(
    spaces: Workspaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, deterministically: replaced right before its first file is removed."""
    precious, job = tmp_path / "precious", uuid7()
    victim = spaces.path(WorkspaceKind.TEMP, job) / "victim"
    names = [f"file-{n}" for n in range(5)]
    for place in (precious, victim):
        place.mkdir()
        for name in names:
            (place / name).write_text("keep me")
    unlink = os.unlink

    def swap_first(path: str | Path, *, dir_fd: int | None = None) -> None:
        monkeypatch.undo()
        victim.rename(tmp_path / "aside")
        victim.symlink_to(precious)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", swap_first)

    spaces.remove(job)

    assert (tmp_path / "aside").is_dir()
    assert sorted(path.name for path in precious.iterdir()) == names
