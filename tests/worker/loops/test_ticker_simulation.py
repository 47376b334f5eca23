"""Eight tickers run for a simulated month with restarts and clock changes: one job per tick."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.worker import ticker_simulation
from tests.worker.ticker_simulation import Month, expected, schedules

from windlass.core.clock import SECOND, from_datetime
from windlass.store import DAY, Store
from windlass.stores import open_store
from windlass.testing import VirtualClock

# New York's clocks go forward on 8 March and Berlin's on 29 March; back on 1 November, 25 October.
SPRING = from_datetime(datetime(2026, 3, 3, 12, tzinfo=UTC))
AUTUMN = from_datetime(datetime(2026, 10, 5, 12, tzinfo=UTC))
MONTH = round(30 * DAY) * SECOND


async def run_month(
    store: Store, clock: VirtualClock, missed: str, *, outages: bool, time: int = MONTH
) -> tuple[Month, int]:
    start = clock.now()
    planned = schedules(missed)
    month = Month(store, clock, seed=7, outages=outages)
    await month.run(planned, start + time)
    expected_jobs = expected(planned, start, clock.now())
    lost, repeated = expected_jobs - month.ran, month.ran - expected_jobs
    assert (lost, repeated) == ({}, {})
    return month, sum(expected_jobs.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "missed"), [(SPRING, "last"), (AUTUMN, "last"), (AUTUMN, "skip")]
)
async def test_each_tick_of_a_month_becomes_one_job(start: int, missed: str) -> None:
    clock = VirtualClock(start)
    async with open_store("memory:", clock=clock) as store:
        month, number = await run_month(store, clock, missed, outages=False)
    assert month.restarts > 100
    assert number > 500


@pytest.mark.slow
@pytest.mark.parametrize("start", [SPRING, AUTUMN], ids=["spring", "autumn"])
async def test_with_policy_all_hours_without_a_ticker_lose_no_tick(start: int) -> None:
    clock = VirtualClock(start)
    async with open_store("memory:", clock=clock) as store:
        await run_month(store, clock, "all", outages=True)


async def test_each_tick_of_a_week_becomes_one_job() -> None:
    """The quick variant, also for planted bugs (tests/planted_bugs/bugs/schedules.py)."""
    clock = VirtualClock(SPRING)
    async with open_store("memory:", clock=clock) as store:
        await run_month(store, clock, "all", outages=True, time=MONTH // 4)


@pytest.mark.slow
async def test_each_tick_of_a_month_becomes_one_job_with_sqlite(tmp_path: Path) -> None:
    clock = VirtualClock(AUTUMN)
    url = f"sqlite:///{tmp_path}/jobs.db?durability=off"
    async with open_store(url, clock=clock) as store:
        await run_month(store, clock, "all", outages=True)


def test_the_simulated_months_contain_the_clock_changes() -> None:
    """Days of clock changes, with ticks in the skipped hour and in the repeated hour."""
    assert ticker_simulation.TICKERS == 8
    spring = expected(schedules("all"), SPRING, SPRING + MONTH)
    autumn = expected(schedules("all"), AUTUMN, AUTUMN + MONTH)
    assert spring["berlin", "2026-03-29T01:00:00Z"] == 1  # 02:30 is skipped: at 03:00 instead
    assert spring["new-york-early", "2026-03-08T07:00:00Z"] == 1
    assert autumn["berlin", "2026-10-25T00:30:00Z"] == 1  # the first 02:30
    assert autumn["berlin", "2026-10-25T01:30:00Z"] == 0
    assert autumn["new-york", "2026-11-01T05:30:00Z"] == 1  # 01:30, twice
    assert autumn["new-york", "2026-11-01T06:30:00Z"] == 1
