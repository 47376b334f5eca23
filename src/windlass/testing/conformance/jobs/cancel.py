"""Cancel: a waiting job is canceled immediately; a running job ends as canceled."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.decisions.maintenance import promote
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.decisions.transition import CancelRequest, Status, submit
from windlass.core.event import EventType
from windlass.core.ids import uuid7
from windlass.core.job.retry_policy import Policy
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    enqueue_one,
    expired_jobs,
    get_one,
    make_failure,
    make_job,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

LEASE = 30.0
OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded(result=b'"done"'),
    "retry": Failed(failure=make_failure()),
    "failure": Failed(failure=make_failure(terminal=True)),
    "release": Released(),
    "snooze": Snoozed(delay=5.0),
    "suspend": Suspended(),
    "abort": Aborted(reason="obeyed"),
}
every_outcome = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())


class TestCancel:
    # -- waiting jobs

    @pytest.mark.parametrize("waiting", [{}, {"delay": 60.0}, {"hold": True}])
    async def test_a_waiting_job_is_canceled_at_once(
        self, store: Store, clock: VirtualClock, waiting: dict[str, Any]
    ) -> None:
        row = await enqueue_one(store, **waiting)
        clock.advance(1)
        answer = await cancel_one(store, row.id, by="ada", reason="not needed")
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED)
        ended = await get_one(store, row.id)
        assert (ended.state, ended.ended_at) == (State.CANCELED, clock.now())
        assert (ended.cancel_by, ended.cancel_reason) == ("ada", "not needed")

    async def test_a_job_between_attempts_is_canceled_at_once(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Snoozed(delay=60.0))
        answer = await cancel_one(store, row.id)
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED)

    async def test_a_canceled_job_never_runs(self, store: Store, clock: VirtualClock) -> None:
        queued, held = await enqueue_one(store), await enqueue_one(store, hold=True)
        delayed = await enqueue_one(store, delay=60.0, expires_in=90.0)
        for row in (queued, held, delayed):
            await cancel_one(store, row.id)
        clock.advance(100)
        assert await store.due(10) == []
        answers = await store.apply([submit(held.id), promote(delayed)])
        assert [answer.applied for answer in answers] == [False, False]
        assert await claim_all(store) == []

    # -- running jobs

    async def test_a_cancel_of_a_running_job_is_recorded(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(1)
        answer = await cancel_one(store, row.id, by="ada", reason="too dear")
        assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
        running = await get_one(store, row.id)
        assert (running.state, running.cancel_at) == (State.RUNNING, clock.now())
        assert running.lease == row.lease
        event = (await read_events(store, row.id))[-1]
        assert event.type is EventType.CANCEL_REQUESTED
        assert event.data == {"by": "ada", "reason": "too dear"}

    async def test_the_next_extend_reports_the_cancel_request(self, store: Store) -> None:
        row = await start_one(store)
        [before] = await store.extend([row.lease], LEASE)
        await cancel_one(store, row.id)
        [extended] = await store.extend([row.lease], LEASE)
        assert (before.cancel_requested, extended.cancel_requested) == (False, True)
        assert not extended.stale

    @every_outcome
    async def test_an_accepted_cancel_wins_over_every_outcome(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        await cancel_one(store, row.id, by="ada", reason="too dear")
        clock.advance(1)
        answer = await settle_one(store, row, outcome)
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED), (
            "the result contains it"
        )
        ended = await get_one(store, row.id)
        assert (ended.state, ended.ended_at) == (State.CANCELED, clock.now())
        assert (ended.result, ended.cancel_by, ended.cancel_reason) == (None, "ada", "too dear")
        assert ended.error is None, "the error of a failed attempt is dropped"
        assert (await read_events(store, row.id))[-1].type is EventType.JOB_CANCELLED
        clock.advance(100)
        await sweep_all(store)
        assert await claim_all(store) == []

    @every_outcome
    async def test_a_repeated_settle_of_a_canceled_job_returns_the_same_result(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        await cancel_one(store, row.id)
        first = await settle_one(store, row, outcome)
        assert await settle_one(store, row, outcome) == first

    async def test_a_success_after_an_accepted_cancel_creates_no_children(
        self, store: Store
    ) -> None:
        row = await start_one(store)
        await cancel_one(store, row.id)
        child = make_job()
        answer = await settle_one(store, row, Succeeded(), children=[child])
        assert answer.state is State.CANCELED
        assert await store.get([child.id]) == [None]

    @pytest.mark.parametrize("cap", [1, 3], ids=["at the crash cap", "below the crash cap"])
    async def test_a_rescue_ends_a_canceled_job_of_a_dead_worker(
        self, store: Store, clock: VirtualClock, cap: int
    ) -> None:
        row = await start_one(store, policy=Policy(crash_cap=cap))
        await cancel_one(store, row.id)
        clock.advance(LEASE)
        [answer] = await sweep_all(store)
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED)
        assert await claim_all(store) == []
        assert (await get_one(store, row.id)).ended_at == clock.now()

    async def test_a_cancel_does_not_end_the_lease(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        await cancel_one(store, row.id)
        clock.advance(LEASE - 1)
        assert await expired_jobs(store, 10) == []
        assert await claim_all(store) == []

    # -- late, repeated and foreign requests

    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (Succeeded(result=b'"done"'), State.SUCCEEDED),
            (Failed(failure=make_failure(terminal=True)), State.FAILED),
        ],
    )
    async def test_a_late_cancel_returns_the_final_state(
        self, store: Store, outcome: Outcome, state: State
    ) -> None:
        row = await start_one(store)
        await settle_one(store, row, outcome)
        ended = await get_one(store, row.id)
        answer = await cancel_one(store, row.id)
        assert (answer.status, answer.state) == (Status.CONFLICT, state)
        assert await get_one(store, row.id) == ended

    async def test_a_repeated_cancel_returns_the_same_result(self, store: Store) -> None:
        waiting = await enqueue_one(store, queue="other")
        running = await start_one(store)
        for row in (waiting, running):
            first = await cancel_one(store, row.id, by="ada", reason="first")
            stored = await get_one(store, row.id)
            again = await cancel_one(store, row.id, by="bob", reason="second")
            assert again == first
            assert await get_one(store, row.id) == stored, "the first request counts"

    async def test_an_unknown_job_is_missing(self, store: Store) -> None:
        answer = await cancel_one(store, uuid7())
        assert (answer.status, answer.state) == (Status.MISSING, None)

    async def test_another_owners_job_is_missing(self, store: Store) -> None:
        foreign = await enqueue_one(store, owner="ada")
        answer = await cancel_one(store, foreign.id, owner="bob")
        assert (answer.status, answer.state) == (Status.MISSING, None)
        assert await get_one(store, foreign.id) == foreign

    async def test_the_empty_owner_is_an_owner(self, store: Store) -> None:
        foreign = await enqueue_one(store, owner="ada")
        mine = await enqueue_one(store, owner="")
        assert (await cancel_one(store, foreign.id, owner="")).status is Status.MISSING
        assert (await cancel_one(store, mine.id, owner="")).applied

    async def test_an_owner_cancels_own_jobs_and_an_operator_any_job(self, store: Store) -> None:
        one, two = await enqueue_one(store, owner="ada"), await enqueue_one(store, owner="ada")
        assert (await cancel_one(store, one.id, owner="ada")).applied
        assert (await cancel_one(store, two.id, owner=None)).applied

    async def test_each_cancel_request_has_its_own_result_in_order(self, store: Store) -> None:
        done = await start_one(store)
        await settle_one(store, done, Succeeded())
        running, waiting = await start_one(store), await enqueue_one(store)
        ids = [waiting.id, uuid7(), done.id, running.id, waiting.id]
        answers = await store.apply([CancelRequest(job_id=job_id) for job_id in ids])
        assert [(answer.status, answer.state) for answer in answers] == [
            (Status.APPLIED, State.CANCELED),
            (Status.MISSING, None),
            (Status.CONFLICT, State.SUCCEEDED),
            (Status.APPLIED, State.RUNNING),
            (Status.APPLIED, State.CANCELED),
        ]
        assert await store.apply([]) == []

    async def test_a_settle_before_the_cancel_wins(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Released())
        answer = await cancel_one(store, row.id)
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED)
        repeat = await settle_one(store, row, Released())
        assert (repeat.status, repeat.state) == (Status.APPLIED, State.CANCELED)

    async def test_a_cancel_does_not_affect_other_jobs(self, store: Store) -> None:
        canceled, other = await enqueue_one(store), await enqueue_one(store)
        await cancel_one(store, canceled.id)
        [row] = await claim_all(store)
        assert row.id == other.id
        answer = await settle_one(store, row, Succeeded())
        assert answer.state is State.SUCCEEDED
