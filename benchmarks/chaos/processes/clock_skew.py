"""Clock skew: a wrong wall clock in one process. Imports no Windlass code.

Only reads of the wall clock are wrong; durations use the monotonic clock. The ledger uses the true
clock, which it imported before.
"""

from __future__ import annotations

import os
import time
from random import Random

from benchmarks.chaos.ledger import note

CLOCK_SKEWED = "clock skewed"


def skew_clock(max_seconds: float, seed: int) -> None:
    """Shift the clock of this process by up to `max_seconds` in either direction, and record it."""
    seconds = Random(seed).uniform(-max_seconds, max_seconds)
    true, nanoseconds = time.time, round(seconds * 1_000_000_000)
    true_ns = time.time_ns
    vars(time)["time"] = lambda: true() + seconds
    vars(time)["time_ns"] = lambda: true_ns() + nanoseconds
    note("driver", fault=CLOCK_SKEWED, pid=os.getpid(), seconds=round(seconds, 1))
