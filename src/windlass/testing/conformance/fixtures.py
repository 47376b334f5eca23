"""Fixtures of the suite. The test file of a store defines `open_store` itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from windlass.store import Store
from windlass.testing.clock import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest_asyncio.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with await open_store() as opened:
        yield opened
