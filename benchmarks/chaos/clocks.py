"""A wall clock that is wrong, in one process. Imports no Windlass code.

Only what asks for the time of day is told a wrong one; durations go by a clock that nobody sets.
The ledger is written by the true one, which it took before.
"""

from __future__ import annotations

import os
import time
from random import Random

from benchmarks.chaos.ledger import note

OFF = "clocks off"


def put_off(most: float, seed: int) -> None:
    """Set this process's clock wrong by up to so many seconds, either way, and write it down."""
    seconds = Random(seed).uniform(-most, most)
    true, nanoseconds = time.time, round(seconds * 1_000_000_000)
    true_ns = time.time_ns
    vars(time)["time"] = lambda: true() + seconds
    vars(time)["time_ns"] = lambda: true_ns() + nanoseconds
    note("driver", fault=OFF, pid=os.getpid(), seconds=round(seconds, 1))
