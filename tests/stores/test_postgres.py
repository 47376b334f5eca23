"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

import pytest

from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_store(clock: VirtualClock, postgres_url: str) -> OpenStore:
    async def open_it() -> Store:
        return PostgresStore(postgres_url, clock=clock)

    return open_it
