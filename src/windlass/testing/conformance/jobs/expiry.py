"""Expiry: a job that did not start before its `expires_at` fails."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.clock import after
from windlass.core.decisions.outcome import Released, Succeeded
from windlass.core.decisions.transition import Status, submit
from windlass.core.job.failure import EXPIRED
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    claim_one,
    enqueue_one,
    get_one,
    settle_one,
    start_one,
    sweep_all,
)


class TestExpiry:
    @pytest.mark.parametrize("waiting", [{}, {"hold": True}, {"delay": 600.0}])
    async def test_a_job_that_did_not_start_in_time_fails_as_expired(
        self, store: Store, clock: VirtualClock, waiting: dict[str, Any]
    ) -> None:
        row = await enqueue_one(store, expires_in=60.0, **waiting)
        assert row.expires_at == after(clock.now(), 60)
        clock.advance(59)
        assert await store.due(10) == []
        clock.advance(1)
        assert await store.due(10) == [row]
        [answer] = await sweep_all(store)
        assert (answer.status, answer.state) == (Status.APPLIED, State.FAILED)
        ended = await get_one(store, row.id)
        assert (ended.ended_at, ended.attempt) == (clock.now(), 0)
        assert ended.error is not None
        assert ended.error.code == EXPIRED

    async def test_a_held_job_that_expired_cannot_be_submitted(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await enqueue_one(store, hold=True, expires_in=10.0)
        clock.advance(10)
        await sweep_all(store)
        answer = await apply_one(store, submit(row.id))
        assert (answer.status, answer.state) == (Status.CONFLICT, State.FAILED)

    async def test_an_expiry_may_be_an_instant(self, store: Store, clock: VirtualClock) -> None:
        instant = after(clock.now(), 5)
        row = await enqueue_one(store, expires_at=instant)
        assert (await get_one(store, row.id)).expires_at == instant

    async def test_a_job_that_started_in_time_does_not_expire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, expires_in=10.0, policy=Policy(backoff=Fixed(seconds=1)))
        clock.advance(20)
        assert await store.due(10) == []
        await settle_one(store, row, Released())
        assert await store.due(10) == [], "nor when it is queued again"
        answer = await settle_one(store, await claim_one(store), Succeeded())
        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
