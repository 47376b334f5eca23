"""Settle: how an attempt ended is written once, by its holder, and may be said again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.core import limits
from windlass.core.clock import after
from windlass.core.errors import TooLargeError
from windlass.core.event import EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job import JobRow
from windlass.core.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    promote,
    settle,
)
from windlass.core.retry import Fixed, Policy
from windlass.core.state import State
from windlass.core.transition import Status, Transition
from windlass.store import Saying, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    apply_one,
    claim_all,
    claim_one,
    enqueue_one,
    even,
    get_one,
    make_failure,
    make_job,
    read_events,
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


def ending(row: JobRow, outcome: Outcome, **more: Any) -> Transition:
    return settle(row, outcome, random=even, **more)


async def start_many(store: Store, count: int) -> list[JobRow]:
    await store.enqueue([make_job() for _ in range(count)])
    return await claim_all(store)


class TestSettling:
    # -- every way an attempt can end

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

    async def test_a_result_may_be_nothing(self, store: Store) -> None:
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

    async def test_a_release_puts_the_job_back_in_line_at_once(
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

    async def test_a_snooze_comes_back_later(self, store: Store, clock: VirtualClock) -> None:
        row = await start_one(store)
        answer = await settle_one(store, row, Snoozed(delay=7.5))
        assert (answer.status, answer.state) == (Status.APPLIED, State.RETRYING)
        assert (await get_one(store, row.id)).due_at == after(clock.now(), 7.5)

    async def test_a_suspended_job_waits_without_a_time_of_its_own(
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

    async def test_what_was_asked_for_stays_as_it_was(self, store: Store) -> None:
        row = await start_one(store, payload=b"p" * 50_000, tags=("a",), headers={"k": "v"})
        await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        ended = await get_one(store, row.id)
        assert (ended.payload, ended.tags, ended.headers) == (b"p" * 50_000, ("a",), {"k": "v"})

    async def test_time_never_runs_backwards_for_a_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store)
        clock.advance(-3_600)
        await settle_one(store, row, Succeeded())
        ended = await get_one(store, row.id)
        assert ended.ended_at == row.started_at

    # -- said again

    @every_outcome
    async def test_a_repeated_settle_is_answered_as_the_first(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        wish = ending(row, outcome)
        first = await apply_one(store, wish)
        before = await get_one(store, row.id)
        assert first.applied
        assert await apply_one(store, wish) == first
        assert await get_one(store, row.id) == before, "and changes nothing more"

    @pytest.mark.parametrize("outcome", RETURNING.values(), ids=RETURNING.keys())
    async def test_a_repeated_settle_is_applied_also_after_another_workers_claim(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        wish = ending(row, outcome)
        await apply_one(store, wish)
        clock.advance(1)
        await sweep_all(store)
        holder = await claim_one(store, worker="another")
        answer = await apply_one(store, wish)
        assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
        assert await get_one(store, row.id) == holder

    @pytest.mark.parametrize("outcome", RETURNING.values(), ids=RETURNING.keys())
    async def test_a_repeated_settle_is_applied_also_after_the_job_has_ended(
        self, store: Store, clock: VirtualClock, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        wish = ending(row, outcome)
        await apply_one(store, wish)
        clock.advance(1)
        await sweep_all(store)
        await settle_one(store, await claim_one(store), Succeeded(result=b'"done"'))
        answer = await apply_one(store, wish)
        assert (answer.status, answer.state) == (Status.APPLIED, State.SUCCEEDED)
        assert (await get_one(store, row.id)).result == b'"done"'

    async def test_a_second_thought_is_stale(self, store: Store) -> None:
        row = await start_one(store)
        await settle_one(store, row, Succeeded(result=b'"done"'))
        answer = await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        assert (answer.status, answer.state) == (Status.STALE, State.SUCCEEDED)
        ended = await get_one(store, row.id)
        assert (ended.state, ended.error) == (State.SUCCEEDED, None)

    # -- by whom

    @every_outcome
    async def test_only_the_holder_of_the_lease_can_settle(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        wish = ending(row, outcome)
        answers = await store.apply(
            [
                replace(wish, token=uuid7()),
                replace(wish, token=None),
                replace(wish, fence=row.fence + 1),
                replace(wish, fence=row.fence - 1),
            ]
        )
        assert [answer.status for answer in answers] == [Status.STALE] * 4
        assert await get_one(store, row.id) == row
        assert (await apply_one(store, wish)).applied

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

    async def test_a_job_that_nobody_claimed_cannot_be_settled(self, store: Store) -> None:
        row = await enqueue_one(store)
        running = replace(row, token=uuid7())
        assert (await settle_one(store, running, Succeeded())).status is Status.STALE
        assert await get_one(store, row.id) == row

    async def test_an_unknown_job_is_missing(self, store: Store) -> None:
        row = await start_one(store)
        answer = await apply_one(store, replace(ending(row, Succeeded()), job_id=uuid7()))
        assert (answer.status, answer.state) == (Status.MISSING, None)

    async def test_what_the_state_forbids_is_a_conflict(self, store: Store) -> None:
        early = await enqueue_one(store, delay=60.0)
        answer = await apply_one(store, promote(early))
        assert (answer.status, answer.state) == (Status.CONFLICT, State.CREATED)
        assert await get_one(store, early.id) == early

    # -- many at a time

    async def test_nothing_to_apply_is_nothing_answered(self, store: Store) -> None:
        assert await store.apply([]) == []

    async def test_each_of_a_batch_is_answered_for_itself_and_in_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        rows = await start_many(store, 4)
        delayed = await enqueue_one(store, delay=60.0)
        answers = await store.apply(
            [
                ending(rows[0], Succeeded()),
                replace(ending(rows[1], Succeeded()), fence=9),
                replace(ending(rows[1], Succeeded()), job_id=uuid7()),
                promote(delayed),
                ending(rows[2], Succeeded(result=b"x" * (limits.MAX_BLOB + 1))),
                ending(rows[3], Released()),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.STALE,
            Status.MISSING,
            Status.CONFLICT,
            Status.REFUSED,
            Status.APPLIED,
        ]
        stored = await store.get([row.id for row in rows])
        assert [row and row.state for row in stored] == [
            State.SUCCEEDED,
            State.RUNNING,
            State.RUNNING,
            State.QUEUED,
        ]

    async def test_an_oversize_result_is_refused_and_leaves_its_neighbours_alone(
        self, store: Store
    ) -> None:
        rows = await start_many(store, 3)
        large = b"x" * limits.MAX_BLOB
        answers = await store.apply(
            [
                ending(rows[0], Succeeded(result=large)),
                ending(rows[1], Succeeded(result=large + b"x")),
                ending(rows[2], Succeeded(result=b"small")),
            ]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.REFUSED,
            Status.APPLIED,
        ]
        assert isinstance(answers[1].error, TooLargeError)
        first, refused, last = await store.get([row.id for row in rows])
        assert first is not None
        assert last is not None
        assert (first.result, last.result) == (large, b"small")
        assert refused == rows[1], "it runs on, and may still be settled"
        assert (await settle_one(store, rows[1], Succeeded(result=b"small"))).applied

    @pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
    async def test_a_delay_that_is_none_is_refused_and_leaves_its_neighbours_alone(
        self, store: Store, delay: float
    ) -> None:
        bad, good = await start_many(store, 2)
        answers = await store.apply([ending(bad, Snoozed(delay=delay)), ending(good, Succeeded())])
        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await get_one(store, bad.id) == bad

    async def test_the_same_settle_twice_in_one_batch_counts_once(self, store: Store) -> None:
        row = await start_one(store, policy=Policy(backoff=Fixed(seconds=10)))
        wish = ending(row, Failed(failure=make_failure()))
        first, again = await store.apply([wish, wish])
        assert first.applied
        assert again == first
        assert (await get_one(store, row.id)).retry_count == 1

    async def test_two_outcomes_of_one_attempt_in_one_batch_act_in_order(
        self, store: Store
    ) -> None:
        row, other = await start_many(store, 2)
        answers = await store.apply(
            [ending(row, Released()), ending(other, Succeeded()), ending(row, Succeeded())]
        )
        assert [answer.status for answer in answers] == [
            Status.APPLIED,
            Status.APPLIED,
            Status.STALE,
        ]
        assert (await get_one(store, row.id)).state is State.QUEUED

    async def test_a_large_batch_is_settled_whole(self, store: Store) -> None:
        rows = await start_many(store, 100)
        answers = await store.apply(
            [
                ending(row, Succeeded(result=str(n).encode()) if n % 2 else Released())
                for n, row in enumerate(rows)
            ]
        )
        assert all(answer.applied for answer in answers)
        stored = await store.get([row.id for row in rows])
        assert [row and row.result for row in stored] == [
            str(n).encode() if n % 2 else None for n in range(100)
        ]
        assert len(await claim_all(store)) == 50

    # -- last words

    @every_outcome
    async def test_a_settle_carries_the_last_words_of_its_attempt(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store)
        words = [
            Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0, stage="parse"),
            Record(n=2, type=EventType.LOG, body=b'"nearly"'),
            Record(n=3, type=EventType.STEP_STATUS, step="parse", checkpoint=b"7"),
        ]
        wish = ending(row, outcome, records=words)
        await apply_one(store, wish)
        await apply_one(store, wish)
        said = [e for e in await read_events(store, row.id) if e.type is not EventType.JOB_STATUS]
        assert [e.type for e in said[:3]] == [word.type for word in words]
        assert said[1].body == b'"nearly"'
        assert len([e for e in said if e.type is EventType.LOG]) == 1
        [steps] = await store.checkpoints([row.id])
        assert steps["parse"].value == b"7"
        after_it = await get_one(store, row.id)
        assert after_it.stage == "parse"
        assert after_it.percent == (100 if isinstance(outcome, Succeeded) else 40)

    async def test_words_already_heard_are_not_written_again_by_the_settle(
        self, store: Store
    ) -> None:
        row = await start_one(store)
        words = [Record(n=n, type=EventType.LOG, body=str(n).encode()) for n in (1, 2, 3)]
        await store.record([Saying(row.lease, words[:2])])
        await settle_one(store, row, Succeeded(), records=words)
        logs = [e.body for e in await read_events(store, row.id) if e.type is EventType.LOG]
        assert logs == [b"1", b"2", b"3"]

    async def test_a_stale_settle_says_nothing(self, store: Store) -> None:
        row = await start_one(store)
        before = await read_events(store, row.id)
        words = [Record(n=1, type=EventType.STEP_PROGRESS, percent=40.0)]
        wish = ending(row, Succeeded(), records=words)
        await apply_one(store, replace(wish, token=uuid7()))
        assert await read_events(store, row.id) == before

    async def test_oversize_last_words_refuse_the_settle(self, store: Store) -> None:
        row = await start_one(store)
        words = [Record(n=1, type=EventType.LOG, body=b"x" * (limits.MAX_EVENT + 1))]
        answer = await settle_one(store, row, Succeeded(), records=words)
        assert answer.status is Status.REFUSED
        assert await get_one(store, row.id) == row
