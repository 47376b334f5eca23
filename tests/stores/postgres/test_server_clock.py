"""All times come from the clock of the server, not from those of workers and producers."""

from __future__ import annotations

import time

import pytest

from windlass.core.clock import SECOND
from windlass.core.decisions.outcome import Failed
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.state import State
from windlass.core.versioned_record import Put
from windlass.stores.postgres import PostgresStore
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    expired_jobs,
    get_one,
    make_failure,
    settle_one,
    start_one,
)

SLACK = 600 * SECOND  # less than the clock error of an hour, more than a slow machine needs
LEASE = 900.0


@pytest.mark.parametrize("clock_error", [-3600, 3600])
async def test_the_clock_of_a_worker_does_not_matter(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, clock_error: int
) -> None:
    """A worker with a wrong clock writes correct times, and judges times of others correctly."""
    nanoseconds = time.time_ns
    async with PostgresStore(postgres_url) as other, PostgresStore(postgres_url) as store:
        now = await other.ping()
        other_row = await start_one(other, lease=LEASE)
        monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + clock_error * 1_000_000_000)

        own_row = await start_one(store, lease=LEASE, policy=Policy(backoff=Fixed(seconds=LEASE)))
        later = await enqueue_one(store, delay=LEASE)
        await store.put_records([Put(kind="k", key="k", value=b"", ttl=LEASE)])
        [extended] = await store.extend([other_row.lease], LEASE)
        written = [
            own_row.created_at,
            own_row.started_at,
            own_row.lease_until,
            extended.lease_until,
        ]

        assert abs(await store.ping() - now) < SLACK
        assert await claim_all(store) == await store.due(10) == await expired_jobs(store, 10) == []
        assert await other.due(10) == await expired_jobs(other, 10) == []
        assert len(await other.list_records("k")) == 1
        await settle_one(store, own_row, Failed(failure=make_failure()))
        again = await get_one(other, own_row.id)
        assert again.state is State.RETRYING
        written += [again.due_at, (await get_one(other, later.id)).due_at]
        late = round(LEASE * SECOND)
        for at, lag in zip(written, (0, 0, late, late, late, late), strict=True):
            assert abs((at or 0) - lag - now) < SLACK
