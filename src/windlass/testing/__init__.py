"""For tests of your own code and for authors of stores: a clock that obeys, factories, faults.

`windlass.testing.conformance` is the contract as a test suite; `faults` wraps a store so that it
repeats calls and loses answers.
"""

from __future__ import annotations

from windlass.testing.clock import VirtualClock
from windlass.testing.crashpoints import CrashPoint, SimulatedCrash
from windlass.testing.factories import claim_all, make_failure, make_job
from windlass.testing.faults import FaultyStore

__all__ = [
    "CrashPoint",
    "FaultyStore",
    "SimulatedCrash",
    "VirtualClock",
    "claim_all",
    "make_failure",
    "make_job",
]
