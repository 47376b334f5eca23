"""PostgreSQL on a bad network keeps the contract: a repeated write returns the same result."""

from __future__ import annotations

from random import Random

import pytest

from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.attempt_records import TestAttemptRecords
from windlass.testing.conformance.attempts.claim import TestClaim
from windlass.testing.conformance.attempts.leases import TestLeases
from windlass.testing.conformance.attempts.settle import TestSettle
from windlass.testing.conformance.attempts.settle_many import TestSettleMany
from windlass.testing.conformance.attempts.settle_records import TestSettleRecords
from windlass.testing.conformance.fixtures import OpenStore, clock, store
from windlass.testing.conformance.flows.children import TestChildren
from windlass.testing.conformance.jobs.uniqueness import TestUniqueness
from windlass.testing.faulty_store import FaultyStore

__all__ = [
    "TestAttemptRecords",
    "TestChildren",
    "TestClaim",
    "TestLeases",
    "TestSettle",
    "TestSettleMany",
    "TestSettleRecords",
    "TestUniqueness",
    "clock",
    "store",
]

pytestmark = pytest.mark.slow  # in `make test`, the short model meets the same faults


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str) -> OpenStore:
    random = Random(1).random

    async def open_it() -> Store:
        return FaultyStore(PostgresStore(postgres_url, clock=clock), random, lose=0.1, repeat=0.4)

    return open_it
