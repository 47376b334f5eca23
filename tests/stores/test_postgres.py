"""Conformance suite of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.stores.postgres.server import CLEAN
from tests.stores.postgres.warm_connections import WarmConnections, warm_connections

from windlass.store import Store
from windlass.stores.postgres import PostgresStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.conformance.suite import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[WarmConnections]:
    async with warm_connections() as connections:
        yield connections


@pytest_asyncio.fixture(loop_scope="module")
async def open_store(
    clock: VirtualClock, postgres_database: str, warm: WarmConnections
) -> OpenStore:
    await warm.execute(postgres_database, CLEAN)

    async def open_it() -> Store:
        return PostgresStore(postgres_database, clock=clock)

    return open_it


@pytest_asyncio.fixture(loop_scope="module")  # type: ignore[no-redef]
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    async with await open_store() as opened:
        yield opened
