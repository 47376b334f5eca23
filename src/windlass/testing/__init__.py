"""Helpers for tests of your own code and of stores.

`twin` runs an app on a memory store with a virtual clock. `context` calls one task without a
worker. `windlass.testing.conformance` tests the Store contract. `FaultyStore` repeats calls and
loses responses.
"""

from __future__ import annotations

from windlass.testing.app_twin import Twin, twin
from windlass.testing.clock import VirtualClock
from windlass.testing.crashing_store import CrashingStore, SimulatedCrash
from windlass.testing.factories import claim_all, make_failure, make_job
from windlass.testing.faulty_store import FaultyStore
from windlass.testing.task_context import RecordingContext, batch, context

__all__ = [
    "CrashingStore",
    "FaultyStore",
    "RecordingContext",
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
