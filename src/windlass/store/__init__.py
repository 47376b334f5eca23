"""The contract of stores: what a store must be able to do, and what it answers to people."""

from __future__ import annotations

from windlass.store.contract import ServerStore, Store
from windlass.store.insights import (
    COUNT_CAP,
    COUNT_RANGE,
    FLOW_RANGE,
    QueueStats,
    Rollup,
    StoreInsights,
)
from windlass.store.values import (
    DAY,
    AttemptRecords,
    Capabilities,
    EventPage,
    Pruned,
    Retention,
)

__all__ = [
    "COUNT_CAP",
    "COUNT_RANGE",
    "DAY",
    "FLOW_RANGE",
    "AttemptRecords",
    "Capabilities",
    "EventPage",
    "Pruned",
    "QueueStats",
    "Retention",
    "Rollup",
    "ServerStore",
    "Store",
    "StoreInsights",
]
