"""Where one round of one side takes place, and what its processes need to know of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "place.json"


@dataclass(frozen=True, slots=True)
class Place:
    """`url` is a fresh database of a server ("" for sides that keep a file in `directory`).

    `jobs` jobs are expected, numbered from 0; with `stamps` it is noted when each of them starts.
    """

    directory: Path
    jobs: int
    url: str = ""
    stamps: bool = False

    def prepare(self) -> None:
        known = asdict(self) | {"directory": str(self.directory)}
        (self.directory / FILE).write_text(json.dumps(known), encoding="utf-8")

    @classmethod
    def here(cls) -> Place:
        """The one that the bench prepared in the working directory."""
        known = json.loads(Path(FILE).read_text(encoding="utf-8"))
        return cls(**known | {"directory": Path.cwd()})
