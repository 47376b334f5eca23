"""Gates that nobody may keep shut: what sweeps look at first, and who is locked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from windlass.stores.postgres import PostgresStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limiting import QUEUE, put_in, set_limit
from windlass.testing.factories import claim_all


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_url) as made:
        yield made


async def test_a_rate_that_is_not_in_the_way_is_not_waited_for(postgres_url: str) -> None:
    """Sweeps would look at the gate again and again, for as long as its jobs run."""
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await set_limit(store, QUEUE, concurrency=2, rate="1/s")
        for _ in range(2):
            await put_in(store, 1)
            assert len(await claim_all(store)) == 1
            clock.advance(2)
        await put_in(store, 1)
        [gate] = await store.gates([QUEUE])
        assert (gate.holding, gate.waiting, gate.look_at) == (2, 1, None)
        assert await store.due(10) == []
