"""Eight tickers for a simulated month on a server: each tick exactly once."""

from __future__ import annotations

import pytest
from tests.worker.loops.test_ticker_simulation import AUTUMN, run_month

from windlass.stores.postgres import PostgresStore
from windlass.testing import VirtualClock


@pytest.mark.slow
async def test_each_tick_of_a_month_becomes_one_job_on_a_server(postgres_url: str) -> None:
    clock = VirtualClock(AUTUMN)
    async with PostgresStore(postgres_url, clock=clock) as store:
        await run_month(store, clock, "all", outages=True)
