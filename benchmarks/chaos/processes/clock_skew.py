"""A wrong wall clock in one process. Imports no Windlass code.

Only reads of the wall clock are wrong; durations use the monotonic clock. The ledger uses the true
clock, which it imported before.
"""

from __future__ import annotations

import os
import time
from random import Random

from benchmarks.chaos.ledger import note

OFF = "clocks off"


def skew_clock(most: float, seed: int) -> None:
    """Set this process's clock wrong by up to so many seconds, either way, and write it down."""
    seconds = Random(seed).uniform(-most, most)
    true, nanoseconds = time.time, round(seconds * 1_000_000_000)
    true_ns = time.time_ns
    vars(time)["time"] = lambda: true() + seconds
    vars(time)["time_ns"] = lambda: true_ns() + nanoseconds
    note("driver", fault=OFF, pid=os.getpid(), seconds=round(seconds, 1))
