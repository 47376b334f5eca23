"""All fixtures and test classes, for import into the test file of a store."""

from __future__ import annotations

from windlass.testing.conformance.attempts.attempt_records import TestAttemptRecords
from windlass.testing.conformance.attempts.claim import TestClaim
from windlass.testing.conformance.attempts.leases import TestLeases
from windlass.testing.conformance.attempts.maintenance import TestMaintenance
from windlass.testing.conformance.attempts.progress import TestProgress
from windlass.testing.conformance.attempts.retries import TestRetries
from windlass.testing.conformance.attempts.settle import TestSettle
from windlass.testing.conformance.attempts.settle_many import TestSettleMany
from windlass.testing.conformance.attempts.settle_records import TestSettleRecords
from windlass.testing.conformance.attempts.suspend import TestSuspend
from windlass.testing.conformance.fixtures import clock, store
from windlass.testing.conformance.flows.children import TestChildren
from windlass.testing.conformance.flows.dependencies import TestDependencies
from windlass.testing.conformance.flows.failed_parents import TestFailedParents
from windlass.testing.conformance.flows.flow_list import TestFlowList
from windlass.testing.conformance.flows.flow_stats import TestFlowStats
from windlass.testing.conformance.handles import TestHandles
from windlass.testing.conformance.idempotency import TestIdempotency
from windlass.testing.conformance.jobs.cancel import TestCancel
from windlass.testing.conformance.jobs.delay_and_hold import TestDelayAndHold
from windlass.testing.conformance.jobs.enqueue import TestEnqueue
from windlass.testing.conformance.jobs.expiry import TestExpiry
from windlass.testing.conformance.jobs.instants import TestInstants
from windlass.testing.conformance.jobs.manual_retry import TestManualRetry
from windlass.testing.conformance.jobs.mixed_requests import TestMixedRequests
from windlass.testing.conformance.jobs.order import TestOrder
from windlass.testing.conformance.jobs.retention import TestRetention
from windlass.testing.conformance.jobs.uniqueness import TestUniqueness
from windlass.testing.conformance.limits.concurrency import TestConcurrency
from windlass.testing.conformance.limits.fairness import TestFairness
from windlass.testing.conformance.limits.gates import TestGates
from windlass.testing.conformance.limits.limit_changes import TestLimitChanges
from windlass.testing.conformance.limits.rates import TestRates
from windlass.testing.conformance.reads.events import TestEvents
from windlass.testing.conformance.reads.failures import TestFailures
from windlass.testing.conformance.reads.find import TestFind
from windlass.testing.conformance.reads.queue_stats import TestQueueStats
from windlass.testing.conformance.reads.search import TestSearch
from windlass.testing.conformance.reads.tail import TestTail
from windlass.testing.conformance.versioned_records import TestVersionedRecords
from windlass.testing.conformance.wakeup import TestWakeup

__all__ = [
    "TestAttemptRecords",
    "TestCancel",
    "TestChildren",
    "TestClaim",
    "TestConcurrency",
    "TestDelayAndHold",
    "TestDependencies",
    "TestEnqueue",
    "TestEvents",
    "TestExpiry",
    "TestFailedParents",
    "TestFailures",
    "TestFairness",
    "TestFind",
    "TestFlowList",
    "TestFlowStats",
    "TestGates",
    "TestHandles",
    "TestIdempotency",
    "TestInstants",
    "TestLeases",
    "TestLimitChanges",
    "TestMaintenance",
    "TestManualRetry",
    "TestMixedRequests",
    "TestOrder",
    "TestProgress",
    "TestQueueStats",
    "TestRates",
    "TestRetention",
    "TestRetries",
    "TestSearch",
    "TestSettle",
    "TestSettleMany",
    "TestSettleRecords",
    "TestSuspend",
    "TestTail",
    "TestUniqueness",
    "TestVersionedRecords",
    "TestWakeup",
    "clock",
    "store",
]
