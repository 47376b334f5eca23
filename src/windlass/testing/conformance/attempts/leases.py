"""Leases: extended by their holder, rescued after expiry, and invalid from then on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.core.clock import after
from windlass.core.decisions.maintenance import rescue
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    settle,
)
from windlass.core.decisions.transition import Status
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.failure import CRASHED
from windlass.core.job.lease import Lease
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import AttemptRecords, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    cancel_one,
    claim_all,
    claim_one,
    enqueue_one,
    expired_jobs,
    get_one,
    make_failure,
    make_job,
    no_jitter,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

LEASE = 30.0
OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded(result=b'"late"'),
    "retry": Failed(failure=make_failure("Late")),
    "failure": Failed(failure=make_failure("Late", terminal=True)),
    "release": Released(),
    "snooze": Snoozed(delay=5.0),
    "suspend": Suspended(),
    "abort": Aborted(reason="late"),
}


async def lose_lease(store: Store, clock: VirtualClock) -> JobRow:
    """Return the row of an unresponsive worker: its lease has expired but is not rescued."""
    row = await start_one(store, worker="stale")
    clock.advance(LEASE + 1)
    return row


class TestLeases:
    async def test_an_extended_lease_starts_now(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        clock.advance(10)
        [answer] = await store.extend([row.lease], 45.0)
        assert not answer.stale
        assert not answer.cancel_requested
        assert answer.lease_until == after(clock.now(), 45)
        assert (await get_one(store, row.id)).lease_until == answer.lease_until

    async def test_a_lease_that_is_extended_in_time_is_never_lost(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        for _ in range(10):
            clock.advance(20)
            assert await expired_jobs(store, 10) == []
            await store.extend([row.lease], LEASE)
        assert (await settle_one(store, row, Succeeded())).applied

    async def test_an_empty_extend_returns_no_results(self, store: Store) -> None:
        assert await store.extend([], 10.0) == []

    async def test_each_extension_has_its_own_result(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(3)])
        rows = await claim_all(store)
        await settle_one(store, rows[1], Succeeded())
        unknown = Lease(uuid7(), 1, uuid7())
        answers = await store.extend([*(row.lease for row in rows), unknown], 60.0)
        assert [answer.stale for answer in answers] == [False, True, False, True]

    async def test_only_the_holders_own_lease_can_be_extended(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(1)
        wrong = [
            replace(row.lease, token=uuid7()),
            replace(row.lease, fence=row.fence + 1),
            replace(row.lease, fence=row.fence - 1),
        ]
        assert [answer.stale for answer in await store.extend(wrong, 60.0)] == [True] * 3
        assert await get_one(store, row.id) == row

    async def test_a_lease_ends_with_its_attempt(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Released())
        [between] = await store.extend([row.lease], 60.0)
        again = await claim_one(store)
        [after_it] = await store.extend([row.lease], 60.0)
        assert between.stale
        assert after_it.stale
        assert (await get_one(store, row.id)).lease_until == again.lease_until

    async def test_an_extension_reports_a_cancel_request(self, store: Store) -> None:
        await store.enqueue([make_job(), make_job()])
        canceled, other = await claim_all(store)
        await cancel_one(store, canceled.id)
        with_request, without = await store.extend([canceled.lease, other.lease], 60.0)
        assert (with_request.stale, with_request.cancel_requested) == (False, True)
        assert (without.stale, without.cancel_requested) == (False, False)

    async def test_a_late_extension_keeps_a_lease_that_was_not_rescued(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await lose_lease(store, clock)
        [answer] = await store.extend([row.lease], LEASE)
        assert not answer.stale
        assert await expired_jobs(store, 10) == []

    async def test_an_extension_never_shortens_a_lease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        [long] = await store.extend([row.lease], 600)
        [short] = await store.extend([row.lease], 1)
        assert short == long
        assert (await get_one(store, row.id)).lease_until == after(clock.now(), 600)

    # -- expired leases

    async def test_a_lease_expires_at_its_instant(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        clock.advance(LEASE - 0.001)
        assert await expired_jobs(store, 10) == []
        clock.advance(0.001)
        assert await expired_jobs(store, 10) == [row]

    async def test_expired_leases_are_listed_longest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        rows = {}
        for lease in (30.0, 10.0, 20.0, 99.0):
            await enqueue_one(store)
            rows[lease] = await claim_one(store, lease=lease)
        clock.advance(40)
        assert await expired_jobs(store, 10) == [rows[10.0], rows[20.0], rows[30.0]]
        assert await expired_jobs(store, 2) == [rows[10.0], rows[20.0]]

    async def test_each_job_of_a_claim_can_expire_until_it_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Also if other jobs of the claim have ended."""
        await store.enqueue([make_job() for _ in range(3)])
        first, second, last = await claim_all(store)
        for ending in (second, first):
            await settle_one(store, ending, Succeeded())
            assert await expired_jobs(store, 10) == []
        clock.advance(LEASE)
        assert await expired_jobs(store, 10) == [last]

    async def test_only_running_jobs_have_expired_leases(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await settle_one(store, await start_one(store), Succeeded())
        await settle_one(store, await start_one(store), Snoozed(delay=1.0))
        await enqueue_one(store)
        clock.advance(3_600)
        assert await expired_jobs(store, 10) == []

    # -- rescue

    async def test_a_rescued_job_is_claimable_again_at_once(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await lose_lease(store, clock)
        [answer] = await sweep_all(store)
        assert (answer.status, answer.state) == (Status.APPLIED, State.QUEUED)
        again = await claim_one(store, worker="rescuer")
        assert (again.id, again.fence, again.attempt) == (row.id, 2, 2)
        assert (again.crash_count, again.retry_count, again.isolated) == (1, 0, True)
        attempts = await store.insights.attempts(row.id)
        assert attempts is not None
        lost, current = attempts
        assert (lost.worker, current.worker) == ("stale", "rescuer")
        assert lost.error is not None
        assert lost.error.code == CRASHED

    async def test_two_rescuers_rescue_a_job_once(self, store: Store, clock: VirtualClock) -> None:
        row = await lose_lease(store, clock)
        async with store.twin() as other:
            [read], [also_read] = await expired_jobs(store, 10), await expired_jobs(other, 10)
            first = await apply_one(store, rescue(read, random=no_jitter))
            second = await apply_one(other, rescue(also_read, random=no_jitter))
        assert first == second, "to the second it is a repeat"
        assert (await get_one(store, row.id)).crash_count == 1
        assert len(await claim_all(store)) == 1

    async def test_a_rescue_after_a_new_claim_is_stale(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await lose_lease(store, clock)
        [read] = await expired_jobs(store, 10)
        await sweep_all(store)
        again = await claim_one(store, worker="next")
        answer = await apply_one(store, rescue(read, random=no_jitter))
        assert (answer.status, answer.state) == (Status.STALE, State.RUNNING)
        assert await get_one(store, again.id) == again

    async def test_a_rescue_read_before_the_next_crash_is_stale(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await lose_lease(store, clock)
        [read] = await expired_jobs(store, 10)
        await sweep_all(store)
        again = await claim_one(store)
        clock.advance(LEASE + 1)
        answer = await apply_one(store, rescue(read, random=no_jitter))
        assert answer.status is Status.STALE
        assert await get_one(store, again.id) == again

    async def test_a_rescue_matches_the_exact_lease_that_it_read(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await lose_lease(store, clock)
        transition = rescue(row, random=no_jitter)
        for other in (replace(transition, token=uuid7()), replace(transition, fence=row.fence + 1)):
            assert (await apply_one(store, other)).status is Status.STALE
        assert await get_one(store, row.id) == row

    async def test_a_rescue_does_not_end_a_lease_extended_meanwhile(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await lose_lease(store, clock)
        [read] = await expired_jobs(store, 10)
        await store.extend([row.lease], LEASE)
        answer = await apply_one(store, rescue(read, random=no_jitter))
        assert not answer.applied
        assert await claim_all(store) == []
        assert (await settle_one(store, row, Succeeded())).applied

    async def test_a_rescue_of_a_job_settled_meanwhile_changes_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await lose_lease(store, clock)
        [read] = await expired_jobs(store, 10)
        await settle_one(store, row, Succeeded())
        ended = await get_one(store, row.id)
        answer = await apply_one(store, rescue(read, random=no_jitter))
        assert not answer.applied
        assert await get_one(store, row.id) == ended

    async def test_one_late_rescue_does_not_stop_the_others(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.enqueue([make_job() for _ in range(3)])
        rows = await claim_all(store)
        clock.advance(LEASE)
        read = await expired_jobs(store, 10)
        await settle_one(store, rows[1], Succeeded())
        answers = await store.apply([rescue(row, random=no_jitter) for row in read])
        assert sorted(answer.applied for answer in answers) == [False, True, True]
        assert {row.id for row in await claim_all(store)} == {rows[0].id, rows[2].id}

    # -- stale workers: they lost their lease and still write

    @pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())
    async def test_a_stale_worker_cannot_settle_after_its_rescue(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        stale = await lose_lease(store, clock)
        await sweep_all(store)
        before = await get_one(store, stale.id)
        answer = await settle_one(store, stale, outcome)
        assert (answer.status, answer.state) == (Status.STALE, State.QUEUED)
        assert await get_one(store, stale.id) == before

    @pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())
    async def test_a_stale_worker_cannot_settle_while_the_next_worker_runs_the_job(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        stale = await lose_lease(store, clock)
        await sweep_all(store)
        holder = await claim_one(store, worker="holder")
        answer = await settle_one(store, stale, outcome)
        assert (answer.status, answer.state) == (Status.STALE, State.RUNNING)
        assert await get_one(store, stale.id) == holder
        assert (await settle_one(store, holder, Succeeded())).applied

    async def test_a_stale_worker_cannot_settle_after_the_next_worker_succeeded(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stale = await lose_lease(store, clock)
        await sweep_all(store)
        holder = await claim_one(store)
        await settle_one(store, holder, Succeeded(result=b'"mine"'))
        answer = await settle_one(store, stale, Succeeded(result=b'"late"'))
        assert (answer.status, answer.state) == (Status.STALE, State.SUCCEEDED)
        assert (await get_one(store, stale.id)).result == b'"mine"'

    @pytest.mark.parametrize("claimed_again", [False, True])
    async def test_a_stale_worker_cannot_write_records(
        self, store: Store, clock: VirtualClock, *, claimed_again: bool
    ) -> None:
        stale = await lose_lease(store, clock)
        await sweep_all(store)
        if claimed_again:
            await claim_one(store)
        before = await read_events(store, stale.id)
        records = [
            Record(n=1, type=EventType.STEP_PROGRESS, percent=99.0),
            Record(n=2, type=EventType.STEP_STATUS, step="voice", checkpoint=b'"late"'),
        ]
        [answer] = await store.record([AttemptRecords(stale.lease, records)])
        assert answer.status is Status.STALE
        assert await read_events(store, stale.id) == before
        assert await store.checkpoints([stale.id]) == [{}]
        assert (await get_one(store, stale.id)).percent == 0

    @pytest.mark.parametrize("claimed_again", [False, True])
    async def test_a_stale_worker_cannot_extend(
        self, store: Store, clock: VirtualClock, *, claimed_again: bool
    ) -> None:
        stale = await lose_lease(store, clock)
        await sweep_all(store)
        if claimed_again:
            await claim_one(store)
        before = await get_one(store, stale.id)
        [answer] = await store.extend([stale.lease], 3_600.0)
        assert answer.stale
        assert await get_one(store, stale.id) == before

    async def test_a_thousand_stale_workers_change_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.enqueue([make_job() for _ in range(50)])
        stale_rows = await claim_all(store)
        clock.advance(LEASE + 1)
        await sweep_all(store)
        holders = await claim_all(store)
        late = [settle(stale, Succeeded(), random=no_jitter) for stale in stale_rows]
        for _ in range(20):
            answers = await store.apply(late)
            assert {answer.status for answer in answers} == {Status.STALE}
        assert await store.get([row.id for row in holders]) == holders
