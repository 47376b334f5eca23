"""Configuration of the SQLite store: path, durability, number of readers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from windlass.core.errors import InvalidArgumentError

Durability = Literal["full", "normal", "off"]
BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteConfig:
    """Path of the file, and its durability.

    durability: "full" survives power loss; "normal" may lose the last commits before a power loss,
        but does not corrupt the file; "off" is for tests
    exclusive: use one connection only; for tests of the disk
    vfs: name of a SQLite file system layer; for tests of the disk
    """

    path: str
    durability: Durability = "full"
    readers: int = 2
    exclusive: bool = False
    vfs: str | None = None
    busy_seconds: float = BUSY_SECONDS

    def __post_init__(self) -> None:
        if not self.path or self.path.startswith((":", "file:")):
            raise InvalidArgumentError(
                f"{self.path!r} is not a file path; for jobs in memory use the URL memory:"
            )
        # Connections open later, and again after a fork: the working directory may have changed.
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        if self.durability not in get_args(Durability):
            expected = ", ".join(get_args(Durability))
            raise InvalidArgumentError(f"durability is {self.durability!r}; expected {expected}")

    @property
    def wal(self) -> Path:
        return Path(os.path.realpath(self.path) + "-wal")  # SQLite creates it next to the real file
