"""What a worker under measure did, as its process tells the bench: one JSON value per line.

`begun` when it starts to look for jobs, `drained` with the time until every job had run and was
settled, `tally` at its end: which jobs ran, how often, and when the first lines of the last ones
were reached. The clock is CLOCK_MONOTONIC, which the processes of one machine share.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

FILE = Path("ledger.json")


def tell(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Ledger:
    """For `jobs` jobs, numbered from 0; with `stamps` it notes when each of them starts."""

    def __init__(self, jobs: int, *, stamps: bool = False) -> None:
        self._runs = bytearray(jobs)
        self._starts: dict[int, int] | None = {} if stamps else None
        self._began = 0
        self._drained = False
        self.left = jobs

    @classmethod
    def here(cls) -> Ledger:
        """The one that the bench prepared in the working directory."""
        wanted = json.loads(FILE.read_text())
        return cls(wanted["jobs"], stamps=wanted["stamps"])

    @staticmethod
    def prepare(directory: Path, jobs: int, *, stamps: bool) -> None:
        (directory / FILE).write_text(json.dumps({"jobs": jobs, "stamps": stamps}))

    def begin(self) -> None:
        """Just before the worker starts to look for jobs."""
        self._began = time.monotonic_ns()
        tell(event="begun")

    def ran(self, payload: str) -> None:
        """The job itself: all that it does."""
        if self._starts is not None:
            now = time.monotonic_ns()
            self._starts.setdefault(int(payload[:8]), now)
        number = int(payload[:8])
        if not self._runs[number]:
            self.left -= 1
        self._runs[number] = min(255, self._runs[number] + 1)

    def settled(self) -> None:
        """One more job is done with, durably; nothing that ran is still to be settled."""
        if not self.left and not self._drained:
            self._drained = True
            tell(event="drained", seconds=(time.monotonic_ns() - self._began) / 1e9)

    def end(self, **more: Any) -> None:
        missing = self._runs.count(0)
        tell(
            event="tally",
            jobs=len(self._runs),
            missing=missing,
            twice=len(self._runs) - missing - self._runs.count(1),
            starts=self._starts,
            **more,
        )
