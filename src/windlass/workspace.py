"""A job's own directories for temporary files, and their safe removal.

`<data>/temp/<id>/` and `<data>/proxy/<id>/`, on this host, named by the first job of a retry
lineage: later attempts and resumed jobs find what earlier ones left. Nothing outside the two roots
is ever touched: names are UUIDs, and removal walks by open handles that follow no symlink,
so a directory swapped for a link while it is being removed leads nowhere.
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


class Kind(StrEnum):
    TEMP = "temp"
    PROXY = "proxy"


ORPHAN_AFTER = {Kind.TEMP: 24 * 3600.0, Kind.PROXY: 48 * 3600.0}


@dataclass(frozen=True, slots=True)
class Found:
    """One directory under a root: whose it is, and how many seconds ago it was last written."""

    kind: Kind
    lineage: UUID
    age: float

    @property
    def old(self) -> bool:
        return self.age >= ORPHAN_AFTER[self.kind]


class Workspaces:
    def __init__(self, data: Path | str) -> None:
        self.data = Path(data)

    def path(self, kind: Kind, lineage: UUID) -> Path:
        """The directory, made if it is not there."""
        with self._root(kind) as root:
            try:
                os.mkdir(str(lineage), _PRIVATE, dir_fd=root)
            except FileExistsError:
                self._check_directory(kind, lineage, root)
        return self.data / kind / str(lineage)

    def _check_directory(self, kind: Kind, lineage: UUID, root: int) -> None:
        mode = os.stat(str(lineage), dir_fd=root, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise ConfigurationError(
                f"{self.data / kind / str(lineage)} is not a directory; remove it, "
                "a job's workspace belongs there"
            )

    def remove(self, lineage: UUID, kinds: Iterable[Kind] = tuple(Kind)) -> list[str]:
        """Remove its directories; answer what could not be removed, as warnings."""
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
            warnings.append(f"workspace {lineage} is nested too deeply to be removed; see to it")

    def list(self, now: float) -> list[Found]:
        """Every workspace on this host; what is not named by a UUID is not ours and not listed."""
        found: list[Found] = []
        for kind in Kind:
            if not (self.data / kind).is_dir():
                continue
            with self._root(kind) as root, os.scandir(root) as entries:
                for entry in entries:
                    lineage = _uuid(entry.name)
                    if lineage is None or not entry.is_dir(follow_symlinks=False):
                        continue
                    with suppress(FileNotFoundError):  # another worker has just removed it
                        written = entry.stat(follow_symlinks=False).st_mtime
                        found.append(Found(kind, lineage, now - written))
        return found

    @contextmanager
    def _root(self, kind: Kind) -> Iterator[int]:
        """The root as an open handle; it is made private, and must not be a symlink."""
        place = self.data / kind
        place.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        try:
            handle = os.open(place, _OPEN)
        except OSError as error:
            raise ConfigurationError(
                f"{place} cannot hold workspaces ({error}); it must be a directory of its own"
            ) from error
        try:
            yield handle
        finally:
            os.close(handle)


def _uuid(name: str) -> UUID | None:
    """The UUID that the name spells exactly, the way we spell them."""
    try:
        value = UUID(name)
    except ValueError:
        return None
    return value if str(value) == name else None
