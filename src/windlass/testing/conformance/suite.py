"""All fixtures and all promises, to be imported into the test file of a store."""

from __future__ import annotations

from windlass.testing.conformance.enqueue import TestEnqueue
from windlass.testing.conformance.events import TestEvents
from windlass.testing.conformance.fixtures import clock, store
from windlass.testing.conformance.order import TestOrder
from windlass.testing.conformance.progress import TestProgress
from windlass.testing.conformance.recording import TestRecording
from windlass.testing.conformance.uniqueness import TestUniqueness

__all__ = [
    "TestEnqueue",
    "TestEvents",
    "TestOrder",
    "TestProgress",
    "TestRecording",
    "TestUniqueness",
    "clock",
    "store",
]
