"""Conformance of the computed insights; the memory store overrides the depth of queues."""

from __future__ import annotations

import pytest

from windlass.stores.computed_insights import ComputedInsights
from windlass.stores.memory import MemoryStore
from windlass.stores.memory.insights import MemoryInsights
from windlass.testing import VirtualClock
from windlass.testing.conformance.attempts.retries import TestRetries
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.flows.flow_stats import TestFlowStats
from windlass.testing.conformance.reads.events import TestEvents
from windlass.testing.conformance.reads.failures import TestFailures
from windlass.testing.conformance.reads.queue_stats import TestQueueStats
from windlass.testing.conformance.reads.search import TestSearch

__all__ = [
    "TestEvents",
    "TestFailures",
    "TestFlowStats",
    "TestQueueStats",
    "TestRetries",
    "TestSearch",
    "clock",
    "store",
]


class OnlyComputed(MemoryInsights):
    """Computes all that can be computed."""

    flows = ComputedInsights.flows
    stats = ComputedInsights.stats


class ComputedStore(MemoryStore):
    @property
    def insights(self) -> MemoryInsights:
        return OnlyComputed(self, self._data)

    def twin(self) -> MemoryStore:
        return ComputedStore(_data=self._data)


@pytest.fixture
def open_store(clock: VirtualClock) -> OpenStore:
    first = ComputedStore(clock=clock)

    async def open_it() -> MemoryStore:
        return first.twin()

    return open_it


def test_no_insight_is_overridden() -> None:
    for name in ("attempts", "count", "failures", "flows", "newest_flows", "stats"):
        assert getattr(OnlyComputed, name) is getattr(ComputedInsights, name)
