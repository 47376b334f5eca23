"""Settle: the outcome of an attempt is written once, by its holder, and may be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.core.clock import after
from windlass.core.decisions.maintenance import promote
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
from windlass.core.decisions.transition import Status, Transition
from windlass.core.ids import uuid7
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    apply_one,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    make_failure,
    make_job,
    no_jitter,
    settle_one,
    start_one,
    sweep_all,
)

ENDING: dict[str, Outcome] = {
    "success": Succeeded(result=b'"done"'),
    "failure": Failed(failure=make_failure(terminal=True)),
    "abort": Aborted(reason="no use"),
}
RETURNING: dict[str, Outcome] = {
    "retry": Failed(failure=make_failure(), delay=1.0),
    "release": Released(),
    "snooze": Snoozed(delay=1.0),
    "suspend": Suspended(timeout=1.0),
}
OUTCOMES = {**ENDING, **RETURNING}
every_outcome = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())


def settle_transition(row: JobRow, outcome: Outcome, **more: Any) -> Transition:
    return settle(row, outcome, random=no_jitter, **more)


async def start_many(store: Store, count: int) -> list[JobRow]:
    await store.enqueue([make_job() for _ in range(count)])
    return await claim_all(store)


class TestSettle:
    # -- outcomes

    async def test_a_success_ends_the_job_with_its_result(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(2)
        answer = await settle_one(store, row, Succeeded(result=b'{"pages":12}'))
        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
        ended = await get_one(store, row.id)
        assert (ended.state, ended.result) == (State.SUCCEEDED, b'{"pages":12}')
        assert (ended.percent, ended.error) == (100, None)
        assert (ended.ended_at, ended.updated_at) == (clock.now(), clock.now())
        assert ended.lease_until is None
        assert ended.position is None

    async def test_a_result_may_be_empty_or_none(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Succeeded())
        assert (await get_one(store, row.id)).result is None

    async def test_a_terminal_failure_ends_the_job_with_its_error(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(2)
        failure = make_failure("invalid_input", terminal=True, step="parse", body=b'{"m":"no"}')
        answer = await settle_one(store, row, Failed(failure=failure))
        assert (answer.status, answer.state) == (Status.APPLIED, State.FAILED)
        ended = await get_one(store, row.id)
        assert ended.error == replace(failure, attempt=1, at=clock.now())
        assert (ended.ended_at, ended.result) == (clock.now(), None)

    async def test_a_retryable_failure_waits_for_its_next_attempt(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        failure = make_failure("TimeoutError", body=b'{"m":"slow"}')
        answer = await settle_one(store, row, Failed(failure=failure))
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        waiting = await get_one(store, row.id)
        assert waiting.due_at == after(clock.now(), 10)
        assert waiting.error == replace(failure, attempt=1, at=clock.now())
        assert (waiting.retry_count, waiting.ended_at, waiting.lease_until) == (1, None, None)

    async def test_a_release_requeues_the_job_at_once(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(2)
        answer = await settle_one(store, row, Released())
        assert (answer.status, answer.state) == (Status.APPLIED, State.QUEUED)
        back = await get_one(store, row.id)
        assert (back.queued_at, back.started_at) == (clock.now(), None)
        assert back.first_started_at == row.started_at
        assert (await claim_one(store)).id == row.id

    async def test_a_snoozed_job_is_due_later(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        answer = await settle_one(store, row, Snoozed(delay=7.5))
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        assert (await get_one(store, row.id)).due_at == after(clock.now(), 7.5)

    async def test_a_suspended_job_waits_without_a_due_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        answer = await settle_one(store, row, Suspended())
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        clock.advance(1_000_000)
        assert (await get_one(store, row.id)).due_at is None
        assert await store.due(10) == []

    async def test_a_suspended_job_may_wait_for_a_limited_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        await settle_one(store, row, Suspended(timeout=60.0))
        clock.advance(60)
        await sweep_all(store)
        assert (await claim_one(store)).id == row.id

    async def test_a_task_may_cancel_its_own_job(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        answer = await settle_one(store, row, Aborted(reason="nothing to do"))
        assert (answer.status, answer.state) == (Status.APPLIED, State.CANCELED)
        ended = await get_one(store, row.id)
        assert (ended.cancel_reason, ended.ended_at) == ("nothing to do", clock.now())

    async def test_a_success_clears_the_error_of_earlier_attempts(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Failed(failure=make_failure("Flaky"), delay=0.0))
        again = await claim_one(store)
        assert again.error is not None
        await settle_one(store, again, Succeeded())
        assert (await get_one(store, row.id)).error is None

    async def test_a_settle_does_not_change_the_enqueued_fields(self, store: Store) -> None:
        row = await start_one(store, payload=b"p" * 50_000, tags=("a",), headers={"k": "v"})
        await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        ended = await get_one(store, row.id)
        assert (ended.payload, ended.tags, ended.headers) == (b"p" * 50_000, ("a",), {"k": "v"})

    async def test_the_instants_of_a_job_never_decrease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(-3_600)
        await settle_one(store, row, Succeeded())
        ended = await get_one(store, row.id)
        assert ended.ended_at == row.started_at

    # -- repeats

    @every_outcome
    async def test_a_repeated_settle_returns_the_same_result(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        transition = settle_transition(row, outcome)
        first = await apply_one(store, transition)
        before = await get_one(store, row.id)
        assert first.applied
        assert await apply_one(store, transition) == first
        assert await get_one(store, row.id) == before, "and changes nothing more"

    @pytest.mark.parametrize("outcome", RETURNING.values(), ids=RETURNING.keys())
    async def test_a_repeated_settle_is_applied_even_after_another_workers_claim(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        transition = settle_transition(row, outcome)
        await apply_one(store, transition)
        clock.advance(1)
        await sweep_all(store)
        holder = await claim_one(store, worker="another")
        answer = await apply_one(store, transition)
        assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
        assert await get_one(store, row.id) == holder

    @pytest.mark.parametrize("outcome", RETURNING.values(), ids=RETURNING.keys())
    async def test_a_repeated_settle_is_applied_even_after_the_job_has_ended(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        transition = settle_transition(row, outcome)
        await apply_one(store, transition)
        clock.advance(1)
        await sweep_all(store)
        await settle_one(store, await claim_one(store), Succeeded(result=b'"done"'))
        answer = await apply_one(store, transition)
        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
        assert (await get_one(store, row.id)).result == b'"done"'

    async def test_a_repeated_settle_is_not_confused_with_other_attempts(
        self, store: Store
    ) -> None:
        row = await start_one(store)
        transitions = []
        for _ in range(3):
            await append_records(store, row, log_record(1, "at it"))
            transitions.append(settle_transition(row, Released()))
            await apply_one(store, transitions[-1])
            row = await claim_one(store)
        for transition in transitions:
            assert (await apply_one(store, transition)).status is Status.APPLIED
        assert await get_one(store, row.id) == row

    async def test_a_second_outcome_of_an_attempt_is_stale(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Succeeded(result=b'"done"'))
        answer = await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        assert (answer.status, answer.state) == (Status.STALE, State.SUCCEEDED)
        ended = await get_one(store, row.id)
        assert (ended.state, ended.error) == (State.SUCCEEDED, None)

    # -- holders

    @every_outcome
    async def test_only_the_holder_of_the_lease_can_settle(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        transition = settle_transition(row, outcome)
        answers = await store.apply(
            [
                replace(transition, token=uuid7()),
                replace(transition, token=None),
                replace(transition, fence=row.fence + 1),
                replace(transition, fence=row.fence - 1),
            ]
        )
        assert [answer.status for answer in answers] == [Status.STALE] * 4
        assert await get_one(store, row.id) == row
        assert (await apply_one(store, transition)).applied

    @every_outcome
    async def test_a_forged_lease_alone_in_a_call_settles_nothing(
        self, store: Store, outcome: Outcome
    ) -> None:
        """A store may use another code path for a single settle than for a batch."""
        row = await start_one(store)
        transition = settle_transition(row, outcome)
        for forged in (
            replace(transition, token=uuid7()),
            replace(transition, token=None),
            replace(transition, fence=row.fence + 1),
            replace(transition, fence=row.fence - 1),
        ):
            assert (await apply_one(store, forged)).status is Status.STALE
            assert await get_one(store, row.id) == row
        assert (await apply_one(store, transition)).applied

    @pytest.mark.parametrize("outcome", ENDING.values(), ids=ENDING.keys())
    async def test_the_settle_of_an_earlier_attempt_is_stale(
        self, store: Store, outcome: Outcome
    ) -> None:
        first = await start_one(store)
        await settle_one(store, first, Released())
        holder = await claim_one(store)
        answer = await settle_one(store, first, outcome)
        assert (answer.status, answer.state) == (Status.STALE, State.RUNNING)
        assert await get_one(store, first.id) == holder

    async def test_an_unclaimed_job_cannot_be_settled(self, store: Store) -> None:
        row = await enqueue_one(store)
        running = replace(row, token=uuid7())
        assert (await settle_one(store, running, Succeeded())).status is Status.STALE
        assert await get_one(store, row.id) == row

    async def test_an_unknown_job_is_missing(self, store: Store) -> None:
        row = await start_one(store)
        answer = await apply_one(
            store, replace(settle_transition(row, Succeeded()), job_id=uuid7())
        )
        assert (answer.status, answer.state) == (Status.MISSING, None)

    async def test_apply_cannot_claim(self, store: Store) -> None:
        row = await enqueue_one(store)
        claim = Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CLAIM)
        assert (await apply_one(store, claim)).status is Status.CONFLICT
        assert await get_one(store, row.id) == row

    async def test_a_transition_that_the_state_forbids_is_a_conflict(self, store: Store) -> None:
        early = await enqueue_one(store, delay=60.0)
        answer = await apply_one(store, promote(early))
        assert (answer.status, answer.state) == (Status.CONFLICT, State.CREATED)
        assert await get_one(store, early.id) == early
