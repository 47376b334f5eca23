"""All fixtures and all promises, to be imported into the test file of a store."""

from __future__ import annotations

from windlass.testing.conformance.batches import TestBatches
from windlass.testing.conformance.cancel import TestCancel
from windlass.testing.conformance.claim import TestClaiming
from windlass.testing.conformance.count import TestCounting
from windlass.testing.conformance.delays import TestTiming
from windlass.testing.conformance.dependencies import TestDepending
from windlass.testing.conformance.enqueue import TestEnqueue
from windlass.testing.conformance.events import TestEvents
from windlass.testing.conformance.failures import TestFailing
from windlass.testing.conformance.fairness import TestTurns
from windlass.testing.conformance.find import TestFinding
from windlass.testing.conformance.fixtures import clock, store
from windlass.testing.conformance.flows import TestFlows
from windlass.testing.conformance.gates import TestGates
from windlass.testing.conformance.handles import TestHandles
from windlass.testing.conformance.handover import TestHandover
from windlass.testing.conformance.instants import TestInstants
from windlass.testing.conformance.leases import TestLeases
from windlass.testing.conformance.limit_changes import TestNewLimits
from windlass.testing.conformance.limits import TestLimiting
from windlass.testing.conformance.lost_parents import TestLostParents
from windlass.testing.conformance.order import TestOrder
from windlass.testing.conformance.progress import TestProgress
from windlass.testing.conformance.rates import TestRates
from windlass.testing.conformance.record import TestRecording
from windlass.testing.conformance.records import TestRecords
from windlass.testing.conformance.repetition import TestRepetition
from windlass.testing.conformance.resume import TestResuming
from windlass.testing.conformance.retention import TestRetention
from windlass.testing.conformance.retries import TestRetries
from windlass.testing.conformance.search import TestSearching
from windlass.testing.conformance.settle import TestSettling
from windlass.testing.conformance.suspend import TestSuspending
from windlass.testing.conformance.tail import TestTailing
from windlass.testing.conformance.uniqueness import TestUniqueness
from windlass.testing.conformance.wakeup import TestWaiting

__all__ = [
    "TestBatches",
    "TestCancel",
    "TestClaiming",
    "TestCounting",
    "TestDepending",
    "TestEnqueue",
    "TestEvents",
    "TestFailing",
    "TestFinding",
    "TestFlows",
    "TestGates",
    "TestHandles",
    "TestHandover",
    "TestInstants",
    "TestLeases",
    "TestLimiting",
    "TestLostParents",
    "TestNewLimits",
    "TestOrder",
    "TestProgress",
    "TestRates",
    "TestRecording",
    "TestRecords",
    "TestRepetition",
    "TestResuming",
    "TestRetention",
    "TestRetries",
    "TestSearching",
    "TestSettling",
    "TestSuspending",
    "TestTailing",
    "TestTiming",
    "TestTurns",
    "TestUniqueness",
    "TestWaiting",
    "clock",
    "store",
]
