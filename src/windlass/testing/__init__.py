"""For tests of your own code and for authors of stores.

`twin` puts an app on a memory store with a clock that obeys; `context` is for calling a task alone.
`windlass.testing.conformance` is the contract as a test suite; `faults` wraps a store so that it
repeats calls and loses answers.
"""

from __future__ import annotations

from windlass.testing.clock import VirtualClock
from windlass.testing.crash_points import CrashPoint, SimulatedCrash
from windlass.testing.factories import claim_all, make_failure, make_job
from windlass.testing.faults import FaultyStore
from windlass.testing.task_context import LoneContext, batch, context
from windlass.testing.twins import Twin, twin

__all__ = [
    "CrashPoint",
    "FaultyStore",
    "LoneContext",
    "SimulatedCrash",
    "Twin",
    "VirtualClock",
    "batch",
    "claim_all",
    "context",
    "make_failure",
    "make_job",
    "twin",
]
