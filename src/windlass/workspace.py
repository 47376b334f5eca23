"""Workspaces: directories of a job for temporary files, and their safe removal.

They are `<data>/temp/<id>/` and `<data>/proxy/<id>/` on this host. The id is that of the first job
of a retry lineage: later attempts and resumed jobs find the files of earlier ones. Nothing outside
the two roots is ever touched: names are UUIDs, and removal uses open directory handles that follow
no symlinks. So replacing a directory by a symlink during its removal has no effect.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import UUID

from windlass.core.errors import ConfigurationError

_PRIVATE = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceKind(StrEnum):
    TEMP = "temp"
    PROXY = "proxy"


ORPHAN_AFTER = {WorkspaceKind.TEMP: 24 * 3600.0, WorkspaceKind.PROXY: 48 * 3600.0}


@dataclass(frozen=True, slots=True)
class FoundWorkspace:
    """One directory under a root: its lineage, and the seconds since its last change."""

    kind: WorkspaceKind
    lineage: UUID
    age: float

    @property
    def old(self) -> bool:
        """Whether it is old enough to be removed as an orphan."""
        return self.age >= ORPHAN_AFTER[self.kind]


class Workspaces:
    """The workspaces of this host, under the directory `data`."""

    def __init__(self, data: Path | str) -> None:
        self.data = Path(data)

    def path(self, kind: WorkspaceKind, lineage: UUID) -> Path:
        """Return the directory; create it if it does not exist."""
        with self._root(kind) as root:
            try:
                os.mkdir(str(lineage), _PRIVATE, dir_fd=root)
            except FileExistsError:
                self._check_directory(kind, lineage, root)
        return self.data / kind / str(lineage)

    def _check_directory(self, kind: WorkspaceKind, lineage: UUID, root: int) -> None:
        mode = os.stat(str(lineage), dir_fd=root, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise ConfigurationError(
                f"{self.data / kind / str(lineage)} is not a directory, but the path of a "
                "workspace; remove it"
            )

    def remove(
        self, lineage: UUID, kinds: Iterable[WorkspaceKind] = tuple(WorkspaceKind)
    ) -> list[str]:
        """Remove the directories of a lineage; return warnings for what could not be removed."""
        warnings: list[str] = []
        for kind in kinds:
            if not (self.data / kind).is_dir():
                continue
            with self._root(kind) as root:
                self._remove(root, lineage, warnings)
        return warnings

    def _remove(self, root: int, lineage: UUID, warnings: list[str]) -> None:
        def note(_: object, path: str, error: tuple[object, BaseException, object]) -> None:
            if not isinstance(error[1], FileNotFoundError):
                warnings.append(f"could not remove {path} of workspace {lineage}: {error[1]}")

        try:
            shutil.rmtree(str(lineage), onerror=note, dir_fd=root)
        except RecursionError:
            warnings.append(
                f"workspace {lineage} is nested too deeply to be removed; remove it manually"
            )

    def list(self, now: float) -> list[FoundWorkspace]:
        """List the workspaces of this host; ignore directories not named by a UUID."""
        found: list[FoundWorkspace] = []
        for kind in WorkspaceKind:
            if not (self.data / kind).is_dir():
                continue
            with self._root(kind) as root, os.scandir(root) as entries:
                for entry in entries:
                    lineage = _uuid(entry.name)
                    if lineage is None or not entry.is_dir(follow_symlinks=False):
                        continue
                    with suppress(FileNotFoundError):  # another worker just removed it
                        written = entry.stat(follow_symlinks=False).st_mtime
                        found.append(FoundWorkspace(kind, lineage, now - written))
        return found

    @contextmanager
    def _root(self, kind: WorkspaceKind) -> Iterator[int]:
        """Open the root; create it with mode 700. It must not be a symlink."""
        path = self.data / kind
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        try:
            handle = os.open(path, _OPEN)
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot hold workspaces ({error}); it must be a directory"
            ) from error
        try:
            yield handle
        finally:
            os.close(handle)


def _uuid(name: str) -> UUID | None:
    """Return the UUID of a name in canonical form, else None."""
    try:
        value = UUID(name)
    except ValueError:
        return None
    return value if str(value) == name else None
