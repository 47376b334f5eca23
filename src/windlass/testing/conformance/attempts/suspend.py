"""Suspend: suspended jobs wait without a slot for jobs, signals or a timeout."""

from __future__ import annotations

import pytest

from windlass.core.decisions.outcome import (
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    settle,
)
from windlass.core.decisions.transition import SIGNAL_PREFIX, ApplyResult, SignalRequest, Status
from windlass.core.errors import InvalidArgumentError
from windlass.core.ids import uuid7
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    cancel_one,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    make_job,
    no_jitter,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

ENDS: dict[str, Outcome] = {
    "success": Succeeded(),
    "failure": Failed(failure=make_failure(terminal=True)),
}


async def signal_one(store: Store, job: JobRow, name: str = "go", **values: object) -> ApplyResult:
    [answer] = await store.apply([SignalRequest(job_id=job.id, name=name, **values)])  # type: ignore[arg-type]
    return answer


class TestSuspend:
    @pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
    async def test_a_suspended_job_is_woken_by_the_end_of_its_children(
        self, store: Store, end: Outcome
    ) -> None:
        parent = await start_one(store)
        children = [make_job(queue="children") for _ in range(3)]
        awaits = tuple(child.id for child in children)
        answer = await settle_one(store, parent, Suspended(awaits=awaits), children=children)
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        row = await get_one(store, parent.id)
        assert (row.waiting_for, row.due_at, row.retry_count) == (3, None, 0)
        assert await claim_all(store) == []

        running = await claim_all(store, "children")
        assert len(running) == 3
        for child in running[:2]:
            await settle_one(store, child, Succeeded())
        assert (await get_one(store, parent.id)).waiting_for == 1
        await settle_one(store, running[2], end)

        again = await claim_one(store)
        assert (again.id, again.attempt, again.waiting_for) == (parent.id, 2, 0)
        assert (await settle_one(store, again, Succeeded())).applied

    async def test_a_repeated_suspension_creates_its_children_once(self, store: Store) -> None:
        parent = await start_one(store)
        child = make_job(queue="children")
        transition = settle(
            parent, Suspended(awaits=(child.id,)), random=no_jitter, children=[child]
        )
        first = await apply_one(store, transition)
        assert await apply_one(store, transition) == first
        await settle_one(store, await claim_one(store, "children"), Succeeded())
        assert (await apply_one(store, transition)).status is Status.APPLIED
        assert (await get_one(store, parent.id)).state is State.QUEUED
        assert await claim_all(store, "children") == []

    async def test_a_stale_suspension_changes_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stale = await start_one(store)
        clock.advance(31)
        await sweep_all(store)
        await claim_one(store)
        child = make_job()
        answer = await settle_one(store, stale, Suspended(awaits=(child.id,)), children=[child])
        assert answer.status is Status.STALE
        assert await store.get([child.id]) == [None]

    async def test_a_suspended_job_does_not_wait_for_ended_jobs(self, store: Store) -> None:
        done = await start_one(store)
        await settle_one(store, done, Succeeded())
        row = await start_one(store)
        await settle_one(store, row, Suspended(awaits=(done.id, uuid7())))
        again = await claim_one(store)
        assert (again.id, again.attempt) == (row.id, 2)

    async def test_a_job_cannot_wait_for_itself_or_twice_for_a_job(self, store: Store) -> None:
        parent, other = await start_one(store), await enqueue_one(store, queue="other")
        for awaits in ((parent.id,), (other.id, other.id)):
            answer = await settle_one(store, parent, Suspended(awaits=awaits))
            assert (answer.status, type(answer.error)) == (Status.REFUSED, InvalidArgumentError)
        child = make_job(queue="other", depends_on=(parent.id,))
        answer = await settle_one(store, parent, Suspended(awaits=(child.id,)), children=[child])
        assert (answer.status, type(answer.error)) == (Status.REFUSED, InvalidArgumentError)
        assert await get_one(store, parent.id) == parent

    async def test_a_suspended_job_is_woken_by_its_timeout(
        self, store: Store, clock: VirtualClock
    ) -> None:
        other = await enqueue_one(store, queue="other")
        row = await start_one(store)
        await settle_one(store, row, Suspended(awaits=(other.id,), timeout=60.0))
        clock.advance(59)
        await sweep_all(store)
        assert await claim_all(store) == []
        clock.advance(1)
        await sweep_all(store)
        again = await claim_one(store)
        assert (again.id, again.waiting_for) == (row.id, 0)
        await settle_one(store, await claim_one(store, "other"), Succeeded())
        assert (await get_one(store, row.id)).lease == again.lease

    async def test_a_suspended_job_can_be_canceled(self, store: Store) -> None:
        other = await enqueue_one(store, queue="other")
        row = await start_one(store)
        await settle_one(store, row, Suspended(awaits=(other.id,)))
        assert (await cancel_one(store, row.id)).state is State.CANCELED
        await settle_one(store, await claim_one(store, "other"), Succeeded())
        ended = await get_one(store, row.id)
        assert (ended.state, ended.waiting_for) == (State.CANCELED, 0)

    async def test_a_job_can_wait_again_for_the_same_jobs(self, store: Store) -> None:
        other = await enqueue_one(store, queue="other")
        row = await start_one(store)
        await settle_one(store, row, Suspended(awaits=(other.id,)))
        await signal_one(store, row)
        assert await claim_all(store) == []  # it waits for a job, not for a signal
        await settle_one(store, await claim_one(store, "other"), Snoozed(delay=5))
        assert await claim_all(store) == []
        assert (await get_one(store, row.id)).waiting_for == 1

    # -- signals

    async def test_a_signal_wakes_a_suspended_job_and_is_stored(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        await settle_one(store, row, Suspended(signals=row.signals))
        assert (await get_one(store, row.id)).due_at is None
        clock.advance(3600)
        await sweep_all(store)
        assert await claim_all(store) == []

        answer = await signal_one(store, row, "approved", value=b'{"by":"ada"}')

        assert (answer.status, answer.state) == (Status.APPLIED, State.QUEUED)
        again = await claim_one(store)
        assert (again.id, again.signals) == (row.id, 1)
        [kept] = await store.checkpoints([row.id])
        assert kept[SIGNAL_PREFIX + "approved"].value == b'{"by":"ada"}'
        steps = [event for event in await read_events(store, row.id) if event.data.get("step")]
        assert [(event.data["step"], event.data["status"]) for event in steps] == [
            (SIGNAL_PREFIX + "approved", "received")
        ]

    async def test_the_first_signal_of_a_name_wins(self, store: Store) -> None:
        row = await start_one(store)
        await signal_one(store, row, value=b"1")
        assert (await signal_one(store, row, value=b"2")).applied
        [kept] = await store.checkpoints([row.id])
        assert kept[SIGNAL_PREFIX + "go"].value == b"1"
        assert (await get_one(store, row.id)).signals == 1

    async def test_a_signal_before_the_wait_is_not_lost(self, store: Store) -> None:
        row = await start_one(store)
        assert (await signal_one(store, row)).state is State.RUNNING
        answer = await settle_one(store, row, Suspended(signals=row.signals))
        assert (answer.status, answer.state) == (Status.APPLIED, State.QUEUED)
        again = await claim_one(store)
        await settle_one(store, again, Suspended(signals=again.signals))
        assert (await get_one(store, row.id)).state is State.RETRYING

    async def test_a_signal_can_arrive_before_the_job_starts(self, store: Store) -> None:
        job = await enqueue_one(store, delay=60)
        assert (await signal_one(store, job)).state is State.CREATED
        [kept] = await store.checkpoints([job.id])
        assert list(kept) == [SIGNAL_PREFIX + "go"]

    async def test_a_signal_does_not_wake_a_job_that_waits_for_something_else(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        await settle_one(store, row, Snoozed(delay=60))
        assert (await signal_one(store, row)).state is State.RETRYING
        clock.advance(59)
        await sweep_all(store)
        assert await claim_all(store) == []

    async def test_a_finished_job_refuses_signals(self, store: Store) -> None:
        row = await start_one(store)
        await signal_one(store, row, "early")
        await settle_one(store, row, Succeeded())
        assert (await signal_one(store, row, "late")).status is Status.CONFLICT
        assert (await signal_one(store, row, "early")).status is Status.APPLIED
        [kept] = await store.checkpoints([row.id])
        assert list(kept) == [SIGNAL_PREFIX + "early"]

    async def test_signals_to_unknown_and_foreign_jobs_have_the_same_result(
        self, store: Store
    ) -> None:
        foreign = await enqueue_one(store, owner="them")
        answers = await store.apply(
            [
                SignalRequest(job_id=uuid7(), name="go", owner="us"),
                SignalRequest(job_id=foreign.id, name="go", owner="us"),
                SignalRequest(job_id=foreign.id, name=""),
                SignalRequest(job_id=foreign.id, name="go", owner="them"),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.MISSING, Status.MISSING, Status.REFUSED, Status.APPLIED,
        ]  # fmt: skip
        assert await store.apply([]) == []

    async def test_a_signal_to_a_released_job_is_stored(self, store: Store) -> None:
        row = await start_one(store)
        await signal_one(store, row)
        await settle_one(store, row, Released())
        assert (await claim_one(store)).signals == 1
