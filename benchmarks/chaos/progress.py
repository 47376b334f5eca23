"""Progress of a storm on the terminal."""

from __future__ import annotations

import sys
import time

from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.storm import Plan, Storm


class Progress:
    """Updates one line on a terminal; elsewhere prints a line every 20 s."""

    def __init__(self, storm: Storm, plan: Plan) -> None:
        self._storm = storm
        self._plan = plan
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._every = 1.0 if self._live else 20.0
        self._shown = self._began if not self._live else 0.0

    def __call__(self, fleet: Fleet) -> None:
        now = time.monotonic()
        if now >= self._shown + self._every:
            self._shown = now
            self._print(self._line(fleet))

    def end(self) -> None:
        if self._live:
            self._print("")

    def _line(self, fleet: Fleet) -> str:
        plan, storm = self._plan, self._storm
        ended = f"{fleet.store.ended_count(fleet.directory):,} of {plan.jobs:,} jobs"
        count = (
            fleet.faults[storm.counted_fault] if storm.counted_fault else sum(fleet.faults.values())
        )
        of = f" of {plan.faults:,}" if plan.faults and storm.counted_fault else ""
        faults = f", {count:,}{of} {storm.counted_fault or 'faults'}" if storm.inject else ""
        return f"{storm.name}: {ended}{faults}, {time.monotonic() - self._began:.0f} s"

    def _print(self, line: str) -> None:
        end = "" if self._live else "\n"
        print(f"\r\x1b[K{line}" if self._live else line, end=end, file=sys.stderr, flush=True)
