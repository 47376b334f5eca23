"""Conformance suite of the memory store."""

from __future__ import annotations

import pytest

from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403


@pytest.fixture
def open_store(clock: VirtualClock) -> OpenStore:
    first = MemoryStore(clock=clock)

    async def open_it() -> Store:
        return first.twin()

    return open_it
