"""Retries: failures and crashes are counted separately; releases and snoozes are not."""

from __future__ import annotations

import pytest

from windlass.core.clock import after
from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.outcome import (
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.decisions.transition import Status
from windlass.core.job.failure import CRASHED, ErrorKind
from windlass.core.job.retry_policy import Delays, Exponential, Fixed, Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    claim_all,
    claim_one,
    get_one,
    make_failure,
    settle_one,
    start_one,
    sweep_all,
)

LEASE = 30.0
BROKEN = Failed(failure=make_failure("Broken"))


async def claim_next_attempt(store: Store, clock: VirtualClock, row: JobRow) -> JobRow:
    """Wait until a job's next attempt is due, and claim it."""
    waiting = await get_one(store, row.id)
    assert waiting.due_at is not None
    clock.jump(waiting.due_at)
    await sweep_all(store)
    return await claim_one(store)


async def crash(store: Store, clock: VirtualClock) -> None:
    clock.advance(LEASE)
    [answer] = await sweep_all(store)
    assert answer.applied


class TestRetries:
    # -- failures

    async def test_a_failed_attempt_waits_for_its_backoff(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = Policy(backoff=Exponential(base=2.0, cap=5.0, jitter="none"), max_retries=9)
        row = await start_one(store, policy=policy)
        for retries, wait in enumerate((2.0, 4.0, 5.0, 5.0), 1):
            await settle_one(store, row, BROKEN)
            waiting = await get_one(store, row.id)
            assert (waiting.state, waiting.retry_count) == (State.RETRYING, retries)
            assert waiting.due_at == after(clock.now(), wait)
            row = await claim_next_attempt(store, clock, row)

    async def test_the_last_of_listed_delays_repeats(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = Policy(backoff=Delays(delays=(60.0, 300.0), jitter=0.0), max_retries=9)
        row = await start_one(store, policy=policy)
        for wait in (60.0, 300.0, 300.0):
            await settle_one(store, row, BROKEN)
            assert (await get_one(store, row.id)).due_at == after(clock.now(), wait)
            row = await claim_next_attempt(store, clock, row)

    async def test_a_failure_may_set_its_own_delay(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        await settle_one(store, row, Failed(failure=make_failure(), delay=77.0))
        waiting = await get_one(store, row.id)
        assert waiting.due_at == after(clock.now(), 77)
        assert waiting.retry_count == 1

    async def test_a_waiting_retry_is_promoted_only_when_due(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        await settle_one(store, row, BROKEN)
        waiting = await get_one(store, row.id)
        clock.advance(9.999)
        assert await store.due(10) == []
        early = await apply_one(store, promote(waiting))
        assert (early.status, early.state) == (Status.CONFLICT, State.RETRYING)
        assert await claim_all(store) == []
        clock.advance(0.001)
        assert await store.due(10) == [waiting]
        in_time = await apply_one(store, promote(waiting))
        assert (in_time.status, in_time.state) == (Status.APPLIED, State.QUEUED)
        assert (await claim_one(store)).id == row.id

    async def test_two_sweepers_promote_a_job_once(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        await settle_one(store, row, Snoozed(delay=5.0))
        clock.advance(5)
        async with store.twin() as other:
            [read], [also_read] = await store.due(10), await other.due(10)
            first = await apply_one(store, promote(read))
            assert await apply_one(other, promote(also_read)) == first
        assert len(await claim_all(store)) == 1

    async def test_a_promote_read_before_a_later_attempt_is_stale(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        await settle_one(store, row, Snoozed(delay=5.0))
        clock.advance(5)
        [read] = await store.due(10)
        await sweep_all(store)
        again = await claim_one(store)
        assert (await apply_one(store, promote(read))).status is Status.STALE
        await settle_one(store, again, Snoozed(delay=5.0))
        assert (await apply_one(store, promote(read))).status is Status.STALE
        assert (await get_one(store, row.id)).state is State.RETRYING

    async def test_a_job_fails_when_its_retries_are_used_up(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=1), max_retries=2))
        for _ in range(2):
            answer = await settle_one(store, row, BROKEN)
            assert answer.state is State.RETRYING
            row = await claim_next_attempt(store, clock, row)
        answer = await settle_one(store, row, BROKEN)
        assert (answer.status, answer.state) == (Status.APPLIED, State.FAILED)
        ended = await get_one(store, row.id)
        assert (ended.attempt, ended.retry_count) == (3, 2)
        assert ended.error is not None
        assert (ended.error.code, ended.error.attempt) == ("Broken", 3)
        clock.advance(3_600)
        assert await store.due(10) == []

    async def test_without_retries_the_first_failure_is_the_last(self, store: Store) -> None:
        row = await start_one(store, policy=Policy(max_retries=0))
        assert (await settle_one(store, row, BROKEN)).state is State.FAILED

    async def test_a_terminal_error_is_never_retried(self, store: Store) -> None:
        row = await start_one(store, policy=Policy(max_retries=99))
        answer = await settle_one(store, row, Failed(failure=make_failure("Bad", terminal=True)))
        assert answer.state is State.FAILED
        ended = await get_one(store, row.id)
        assert ended.error is not None
        assert (ended.error.kind, ended.retry_count) == (ErrorKind.TERMINAL, 0)

    async def test_every_attempt_is_listed(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store, worker="w1", policy=Policy(backoff=Fixed(seconds=5)))
        clock.advance(1)
        await settle_one(store, row, BROKEN)
        again = await claim_next_attempt(store, clock, row)
        await settle_one(store, again, Succeeded())
        attempts = await store.insights.attempts(row.id)
        assert attempts is not None
        first, second = attempts
        assert (first.number, first.fence, first.worker) == (1, 1, "w1")
        assert (first.outcome, first.delay) == (Trigger.RETRY, 5.0)
        assert first.error is not None
        assert first.error.code == "Broken"
        assert first.started_at == row.started_at
        assert first.ended_at == after(first.started_at, 1)
        assert (second.number, second.outcome, second.error) == (2, Trigger.SUCCEED, None)

    # -- crashes

    async def test_the_first_crash_is_retried_at_once_the_next_after_the_backoff(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=7), crash_cap=9))
        await crash(store, clock)
        again = await claim_one(store)
        assert (again.id, again.crash_count) == (row.id, 1)
        await crash(store, clock)
        waiting = await get_one(store, row.id)
        assert (waiting.state, waiting.crash_count) == (State.RETRYING, 2)
        assert waiting.due_at == after(clock.now(), 7)

    async def test_a_job_that_crashes_up_to_its_cap_fails(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=0), crash_cap=3))
        for _ in range(2):
            await crash(store, clock)
            await claim_one(store)
        clock.advance(LEASE)
        [answer] = await sweep_all(store)
        assert (answer.status, answer.state) == (Status.APPLIED, State.FAILED)
        ended = await get_one(store, row.id)
        assert (ended.crash_count, ended.retry_count, ended.attempt) == (3, 0, 3)
        assert ended.error is not None
        assert (ended.error.code, ended.error.kind) == (CRASHED, ErrorKind.TERMINAL)
        assert ended.ended_at == clock.now()

    async def test_crashes_and_failures_are_counted_separately(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = Policy(backoff=Fixed(seconds=1), max_retries=1, crash_cap=2)
        row = await start_one(store, policy=policy)
        await crash(store, clock)
        again = await claim_one(store)
        assert (await settle_one(store, again, BROKEN)).state is State.RETRYING
        waiting = await get_one(store, row.id)
        assert (waiting.retry_count, waiting.crash_count) == (1, 1)
        last = await claim_next_attempt(store, clock, row)
        assert (await settle_one(store, last, Succeeded())).state is State.SUCCEEDED
        ended = await get_one(store, row.id)
        assert (ended.retry_count, ended.crash_count) == (1, 1)

    async def test_a_crash_reported_by_the_worker_counts_like_an_expired_lease(
        self, store: Store
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=0), crash_cap=2))
        assert (await settle_one(store, row, Crashed())).state is State.QUEUED
        again = await claim_one(store)
        assert (again.crash_count, again.retry_count, again.isolated) == (1, 0, True)
        assert (await settle_one(store, again, Crashed())).state is State.FAILED
        ended = await get_one(store, row.id)
        assert (ended.crash_count, ended.retry_count) == (2, 0)

    # -- uncounted

    @pytest.mark.parametrize(
        "outcome",
        [Released(), Snoozed(delay=0.0), Snoozed(delay=3.0), Suspended(timeout=3.0)],
        ids=["release", "snooze at once", "snooze", "suspend"],
    )
    async def test_releases_and_snoozes_are_not_counted(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store, policy=Policy(max_retries=1, crash_cap=1))
        for attempt in range(2, 12):
            assert (await settle_one(store, row, outcome)).applied
            clock.advance(3)
            await sweep_all(store)
            row = await claim_one(store)
            assert (row.attempt, row.retry_count, row.crash_count) == (attempt, 0, 0)
            assert row.error is None
        assert (await settle_one(store, row, BROKEN)).state is State.RETRYING

    async def test_every_attempt_gets_the_same_payload(self, store: Store) -> None:
        row = await start_one(store, tags=("kept",), payload=b"p" * 20_000)
        await settle_one(store, row, Failed(failure=make_failure(), delay=0.0))
        again = await claim_one(store)
        assert (again.id, again.tags, again.payload) == (row.id, ("kept",), b"p" * 20_000)
        assert again.policy == row.policy
