"""Conformance of a store with lost and repeated calls: a repeated write is idempotent."""

from __future__ import annotations

from random import Random

import pytest

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403
from windlass.testing.faulty_store import FaultyStore

# Methods that write; `make test-all` runs the whole suite.
SAMPLE = (
    TestSettleMany,  # noqa: F405
    TestSettleRecords,  # noqa: F405
    TestClaim,  # noqa: F405
    TestEnqueue,  # noqa: F405
    TestIdempotency,  # noqa: F405
    TestSettle,  # noqa: F405
)


@pytest.fixture
def open_store(clock: VirtualClock) -> OpenStore:
    first = FaultyStore(MemoryStore(clock=clock), Random(1).random, lose=0.1, repeat=0.4)

    async def open_it() -> Store:
        return first.twin()

    return open_it
