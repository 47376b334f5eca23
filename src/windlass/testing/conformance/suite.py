"""All fixtures and test classes, for import into the test file of a store."""

from __future__ import annotations

from windlass.testing.conformance.batches import TestBatches
from windlass.testing.conformance.cancel import TestCancel
from windlass.testing.conformance.claim import TestClaim
from windlass.testing.conformance.count import TestCount
from windlass.testing.conformance.delays import TestDelays
from windlass.testing.conformance.dependencies import TestDependencies
from windlass.testing.conformance.enqueue import TestEnqueue
from windlass.testing.conformance.events import TestEvents
from windlass.testing.conformance.failures import TestFailures
from windlass.testing.conformance.fairness import TestFairness
from windlass.testing.conformance.find import TestFind
from windlass.testing.conformance.fixtures import clock, store
from windlass.testing.conformance.flows import TestFlows
from windlass.testing.conformance.gates import TestGates
from windlass.testing.conformance.handles import TestHandles
from windlass.testing.conformance.handover import TestHandover
from windlass.testing.conformance.instants import TestInstants
from windlass.testing.conformance.leases import TestLeases
from windlass.testing.conformance.limit_changes import TestLimitChanges
from windlass.testing.conformance.limits import TestLimits
from windlass.testing.conformance.lost_parents import TestLostParents
from windlass.testing.conformance.order import TestOrder
from windlass.testing.conformance.progress import TestProgress
from windlass.testing.conformance.rates import TestRates
from windlass.testing.conformance.record import TestRecord
from windlass.testing.conformance.records import TestRecords
from windlass.testing.conformance.repetition import TestRepetition
from windlass.testing.conformance.resume import TestResume
from windlass.testing.conformance.retention import TestRetention
from windlass.testing.conformance.retries import TestRetries
from windlass.testing.conformance.search import TestSearch
from windlass.testing.conformance.settle import TestSettle
from windlass.testing.conformance.suspend import TestSuspend
from windlass.testing.conformance.tail import TestTail
from windlass.testing.conformance.uniqueness import TestUniqueness
from windlass.testing.conformance.wakeup import TestWakeup

__all__ = [
    "TestBatches",
    "TestCancel",
    "TestClaim",
    "TestCount",
    "TestDelays",
    "TestDependencies",
    "TestEnqueue",
    "TestEvents",
    "TestFailures",
    "TestFairness",
    "TestFind",
    "TestFlows",
    "TestGates",
    "TestHandles",
    "TestHandover",
    "TestInstants",
    "TestLeases",
    "TestLimitChanges",
    "TestLimits",
    "TestLostParents",
    "TestOrder",
    "TestProgress",
    "TestRates",
    "TestRecord",
    "TestRecords",
    "TestRepetition",
    "TestResume",
    "TestRetention",
    "TestRetries",
    "TestSearch",
    "TestSettle",
    "TestSuspend",
    "TestTail",
    "TestUniqueness",
    "TestWakeup",
    "clock",
    "store",
]
