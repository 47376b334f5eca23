"""Configuration of one round of one adapter, shared with its processes as a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "round.json"


@dataclass(frozen=True, slots=True)
class RoundConfig:
    """`url` is a new database of a server ("" for systems that keep a file in `directory`).

    `jobs` is the number of jobs, numbered from 0. With `stamps`, workers record every start.
    """

    directory: Path
    jobs: int
    url: str = ""
    stamps: bool = False

    def save(self) -> None:
        values = asdict(self) | {"directory": str(self.directory)}
        (self.directory / FILE).write_text(json.dumps(values), encoding="utf-8")

    @classmethod
    def load(cls) -> RoundConfig:
        """Read the file that the bench wrote to the working directory."""
        values = json.loads(Path(FILE).read_text(encoding="utf-8"))
        return cls(**values | {"directory": Path.cwd()})
