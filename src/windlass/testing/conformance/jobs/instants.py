"""Instants: all come from the store's clock, and those of a job never decrease."""

from __future__ import annotations

import pytest

from windlass.core.clock import SECOND
from windlass.core.decisions.outcome import Aborted, Failed, Outcome, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import CancelRequest, submit
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import ENDS, full_history
from windlass.testing.factories import (
    append_records,
    checkpoint_record,
    claim_one,
    enqueue_one,
    expired_jobs,
    get_one,
    log_record,
    make_failure,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

HOUR = 3600 * SECOND


class TestInstants:
    async def test_instants_come_from_the_clock_of_the_store(
        self, store: Store, clock: VirtualClock
    ) -> None:
        clock.advance(17)

        assert await store.ping() == clock.now()

    async def test_each_transition_has_its_instant(self, store: Store, clock: VirtualClock) -> None:
        enqueued = clock.now()
        job = await enqueue_one(store)
        started = clock.advance(3)
        await claim_one(store)
        ended = clock.advance(7)
        await settle_one(store, await get_one(store, job.id), Succeeded())

        done = await get_one(store, job.id)

        assert (done.created_at, done.queued_at) == (enqueued, enqueued)
        assert (done.started_at, done.first_started_at) == (started, started)
        assert (done.ended_at, done.updated_at) == (ended, ended)
        instants = [event.at for event in await read_events(store, job.id)]
        assert instants == [enqueued, enqueued, started, ended]

    async def test_a_job_that_cannot_run_yet_has_no_queued_at(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await enqueue_one(store, delay=10)
        assert (job.state, job.queued_at) == (State.CREATED, None)
        assert job.due_at == clock.now() + 10 * SECOND

        promoted = clock.advance(12)
        await sweep_all(store)

        assert (await get_one(store, job.id)).queued_at == promoted

    async def test_a_submit_sets_queued_at(self, store: Store, clock: VirtualClock) -> None:
        job = await enqueue_one(store, hold=True)
        submitted = clock.advance(5)

        await store.apply([submit(job.id)])

        now = await get_one(store, job.id)
        assert (now.queued_at, now.updated_at) == (submitted, submitted)

    async def test_a_retry_is_due_after_its_delay_by_the_clock_of_the_store(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        failed = clock.advance(4)
        await settle_one(store, job, Failed(failure=make_failure(), delay=2.5))

        waiting = await get_one(store, job.id)

        assert waiting.due_at == failed + 2.5 * SECOND
        assert waiting.error is not None
        assert waiting.error.at == failed

    async def test_a_requeued_job_keeps_only_its_first_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        first_start = clock.now()
        job = await start_one(store)
        released = clock.advance(5)
        await settle_one(store, job, Released())

        again = await get_one(store, job.id)
        assert (again.queued_at, again.started_at) == (released, None)
        assert again.first_started_at == first_start

        restarted = clock.advance(5)
        running = await claim_one(store)
        assert (running.started_at, running.first_started_at) == (restarted, first_start)

    @pytest.mark.parametrize("end", ENDS)
    async def test_a_job_has_an_end_exactly_when_it_is_final(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        rows = [
            await get_one(store, job_id) async for job_id in full_history(store, clock, ENDS[end])
        ]

        assert [row.ended_at is not None for row in rows] == [row.final for row in rows]
        assert rows[-1].final
        assert rows[-1].ended_at == rows[-1].updated_at == clock.now()

    async def test_a_lease_runs_from_the_claim(self, store: Store, clock: VirtualClock) -> None:
        await enqueue_one(store)
        clock.advance(100)

        job = await claim_one(store, lease=12)

        assert job.lease_until == clock.now() + 12 * SECOND

    async def test_records_have_the_instant_of_their_write(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        written_at = clock.advance(8)
        await append_records(store, job, log_record(1), checkpoint_record(2, "voice", b"x"))

        log = await read_events(store, job.id, after=job.seq)

        assert [event.at for event in log] == [written_at, written_at]
        [steps] = await store.checkpoints([job.id])
        assert steps["voice"].at == written_at
        assert (await get_one(store, job.id)).updated_at == written_at

    # -- when the clock steps back

    @pytest.mark.parametrize(
        "end",
        [
            Succeeded(),
            Failed(failure=make_failure(terminal=True)),
            Aborted(),
        ],
    )
    async def test_the_order_holds_when_the_clock_steps_back(
        self, store: Store, clock: VirtualClock, end: Outcome
    ) -> None:
        job = await enqueue_one(store)
        clock.jump(clock.now() - HOUR)
        attempt = await claim_one(store)
        await append_records(store, attempt, log_record(1))
        clock.jump(clock.now() - HOUR)
        await settle_one(store, attempt, end)

        row = await get_one(store, job.id)

        assert row.queued_at is not None
        assert row.started_at is not None
        assert row.ended_at is not None
        assert row.created_at <= row.queued_at <= row.started_at <= row.ended_at == row.updated_at
        assert row.first_started_at == row.started_at
        instants = [event.at for event in await read_events(store, job.id)]
        assert instants == sorted(instants)

    async def test_the_order_holds_across_attempts_when_the_clock_steps_back(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        clock.advance(10)
        await settle_one(store, job, Failed(failure=make_failure(), delay=0))
        clock.jump(clock.now() - HOUR)
        second = await claim_one(store)

        assert second.queued_at is not None
        assert second.started_at is not None
        assert second.first_started_at is not None
        assert second.first_started_at <= second.queued_at <= second.started_at
        assert second.lease_until is not None
        assert second.lease_until > second.started_at
        instants = [event.at for event in await read_events(store, job.id)]
        assert instants == sorted(instants)

    @pytest.mark.parametrize("waiting", ["created", "queued", "retrying"])
    async def test_a_job_canceled_after_a_clock_step_back_ends_no_earlier_than_its_creation(
        self, store: Store, clock: VirtualClock, waiting: str
    ) -> None:
        job = await enqueue_one(store, hold=waiting == "created")
        if waiting == "retrying":
            await settle_one(store, await claim_one(store), Snoozed(delay=60))
        assert (await get_one(store, job.id)).state == waiting
        clock.jump(clock.now() - HOUR)

        await store.apply([CancelRequest(job_id=job.id)])

        row = await get_one(store, job.id)
        assert row.ended_at is not None
        assert row.created_at <= (row.queued_at or row.created_at) <= row.ended_at

    async def test_a_clock_step_back_does_not_end_a_lease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        clock.jump(clock.now() - HOUR)

        assert await expired_jobs(store, 10) == []
        assert (await settle_one(store, job, Succeeded())).applied

    async def test_a_clock_jump_ahead_ends_leases_but_loses_no_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        clock.jump(clock.now() + 1000 * HOUR)

        await sweep_all(store)

        again = await claim_one(store)
        assert (again.id, again.attempt, again.crash_count) == (job.id, 2, 1)
