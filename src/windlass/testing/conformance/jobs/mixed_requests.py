"""Mixed requests: transitions, cancels and signals in one call, each with its own result."""

from __future__ import annotations

from dataclasses import replace

from windlass.core import size_limits
from windlass.core.decisions.maintenance import rescue
from windlass.core.decisions.outcome import Released, Succeeded, Suspended, settle
from windlass.core.decisions.transition import (
    SIGNAL_PREFIX,
    ApplyRequest,
    CancelRequest,
    SignalRequest,
    Status,
    Transition,
    submit,
)
from windlass.core.errors import InvalidArgumentError, TooLargeError
from windlass.core.ids import uuid7
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.attempts.settle import start_many
from windlass.testing.factories import (
    cancel_one,
    checkpoint_record,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    make_job,
    no_jitter,
    read_events,
    start_one,
)


def success(row: JobRow) -> Transition:
    return settle(row, Succeeded(result=b"1"), random=no_jitter)


def cancel(row: JobRow) -> CancelRequest:
    return CancelRequest(job_id=row.id, by="ada")


def signal(row: JobRow, value: bytes = b"1") -> SignalRequest:
    return SignalRequest(job_id=row.id, name="go", value=value)


async def answers(store: Store, *requests: ApplyRequest) -> list[tuple[Status, State | None]]:
    return [(answer.status, answer.state) for answer in await store.apply(requests)]


class TestMixedRequests:
    # -- different jobs

    async def test_each_kind_of_request_has_its_own_result_in_order(
        self, store: Store, clock: VirtualClock
    ) -> None:
        dead = await start_one(store, queue="dead")
        clock.advance(31)
        rows = await start_many(store, 4)
        held = await enqueue_one(store, hold=True)
        queued = await enqueue_one(store, queue="other")
        assert await answers(
            store,
            signal(rows[0]),
            success(rows[1]),
            cancel(queued),
            replace(success(rows[2]), fence=9),
            cancel(rows[2]),
            submit(held.id),
            success(rows[3]),
            rescue(dead, random=no_jitter),
        ) == [
            (Status.APPLIED, State.RUNNING),
            (Status.APPLIED, State.SUCCEEDED),
            (Status.APPLIED, State.CANCELED),
            (Status.STALE, State.RUNNING),
            (Status.APPLIED, State.RUNNING),
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.SUCCEEDED),
            (Status.APPLIED, State.QUEUED),
        ]
        assert (await get_one(store, rows[2].id)).cancel_requested
        assert (await get_one(store, rows[0].id)).signals == 1

    async def test_an_invalid_or_foreign_request_does_not_affect_the_others(
        self, store: Store
    ) -> None:
        rows = await start_many(store, 2)
        foreign = await enqueue_one(store, owner="them")
        found = await store.apply(
            [
                SignalRequest(job_id=rows[0].id, name=""),
                success(rows[0]),
                replace(signal(rows[1]), value=b"x" * (size_limits.MAX_BLOB + 1)),
                CancelRequest(job_id=foreign.id, owner="us"),
                SignalRequest(job_id=foreign.id, name="go", owner="us"),
                CancelRequest(job_id=uuid7()),
                replace(success(rows[1]), result=b"x" * (size_limits.MAX_BLOB + 1)),
                CancelRequest(job_id=foreign.id, owner="them"),
            ]
        )
        assert [answer.status for answer in found] == [
            Status.REFUSED, Status.APPLIED, Status.REFUSED, Status.MISSING,
            Status.MISSING, Status.MISSING, Status.REFUSED, Status.APPLIED,
        ]  # fmt: skip
        assert [type(found[index].error) for index in (0, 2, 6)] == [
            InvalidArgumentError, TooLargeError, TooLargeError,
        ]  # fmt: skip
        assert (await get_one(store, rows[1].id)) == rows[1]

    async def test_a_success_and_a_cancel_of_its_dependent_apply_in_order(
        self, store: Store
    ) -> None:
        parent = await start_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        assert await answers(store, success(parent), cancel(child)) == [
            (Status.APPLIED, State.SUCCEEDED),
            (Status.APPLIED, State.CANCELED),
        ]
        assert await claim_all(store) == []

    async def test_a_cancel_and_a_signal_of_its_dependent_apply_in_order(
        self, store: Store
    ) -> None:
        parent = await enqueue_one(store)
        child = await enqueue_one(store, depends_on=(parent.id,))
        assert await answers(
            store, signal(child), cancel(parent), signal(child), cancel(child)
        ) == [
            (Status.APPLIED, State.CREATED),
            (Status.APPLIED, State.CANCELED),
            (Status.APPLIED, State.CANCELED),
            (Status.APPLIED, State.CANCELED),
        ]
        assert (await get_one(store, child.id)).signals == 1

    async def test_a_new_child_can_be_signaled_and_canceled_in_the_same_call(
        self, store: Store
    ) -> None:
        parent = await start_one(store)
        child = make_job(queue="children")
        suspend = settle(parent, Suspended(awaits=(child.id,)), random=no_jitter, children=[child])
        requests: list[ApplyRequest] = [
            SignalRequest(job_id=child.id, name="go", value=b"1"),
            SignalRequest(job_id=child.id, name="go", value=b"2"),
            CancelRequest(job_id=child.id),
        ]
        assert await answers(store, suspend, *requests) == [
            (Status.APPLIED, State.RETRYING),
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.CANCELED),
        ]
        [steps] = await store.checkpoints([child.id])
        assert steps[SIGNAL_PREFIX + "go"].value == b"1"
        assert (await claim_one(store)).id == parent.id, "its only child has ended"

    # -- the same job

    async def test_a_settle_before_a_cancel_and_a_signal_wins(self, store: Store) -> None:
        row = await start_one(store)
        assert await answers(store, success(row), cancel(row), signal(row)) == [
            (Status.APPLIED, State.SUCCEEDED),
            (Status.CONFLICT, State.SUCCEEDED),
            (Status.CONFLICT, State.SUCCEEDED),
        ]
        assert (await get_one(store, row.id)).result == b"1"

    async def test_a_cancel_before_a_settle_wins(self, store: Store) -> None:
        row = await start_one(store)
        assert await answers(store, cancel(row), signal(row), success(row), cancel(row)) == [
            (Status.APPLIED, State.RUNNING),
            (Status.APPLIED, State.RUNNING),
            (Status.APPLIED, State.CANCELED),
            (Status.APPLIED, State.CANCELED),
        ]
        ended = await get_one(store, row.id)
        assert (ended.result, ended.cancel_by) == (None, "ada")

    async def test_a_released_job_is_canceled_in_the_same_call(self, store: Store) -> None:
        row = await start_one(store)
        release = settle(row, Released(), random=no_jitter)
        assert await answers(store, release, cancel(row)) == [
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.CANCELED),
        ]
        assert await claim_all(store) == []

    async def test_a_signal_wakes_a_job_suspended_in_the_same_call(self, store: Store) -> None:
        row = await start_one(store)
        suspend = settle(row, Suspended(signals=0), random=no_jitter)
        assert await answers(store, suspend, signal(row), signal(row, b"2")) == [
            (Status.APPLIED, State.RETRYING),
            (Status.APPLIED, State.QUEUED),
            (Status.APPLIED, State.QUEUED),
        ]
        [steps] = await store.checkpoints([row.id])
        assert steps[SIGNAL_PREFIX + "go"].value == b"1", "the first value is kept"
        assert (await claim_one(store)).attempt == 2

    async def test_a_step_stored_in_the_same_call_is_no_new_signal(self, store: Store) -> None:
        row = await start_one(store)
        step = checkpoint_record(1, SIGNAL_PREFIX + "go", b"mine")
        release = settle(row, Released(), random=no_jitter, records=[step])
        assert await answers(store, release, signal(row)) == [(Status.APPLIED, State.QUEUED)] * 2
        [steps] = await store.checkpoints([row.id])
        assert steps[SIGNAL_PREFIX + "go"].value == b"mine"

    async def test_the_events_of_one_call_are_numbered_in_order(self, store: Store) -> None:
        row = await start_one(store)
        end = settle(row, Succeeded(), random=no_jitter, records=[log_record(1, "last")])
        await store.apply([signal(row), cancel(row), end])
        events = await read_events(store, row.id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type.value for event in events[-4:]] == [
            "step-status", "cancel-requested", "log", "job-cancelled",
        ]  # fmt: skip

    async def test_a_repeated_call_returns_the_same_results(self, store: Store) -> None:
        one, two, three = await start_many(store, 3)
        requests = (success(one), signal(two), cancel(three))
        first = await answers(store, *requests)
        assert await answers(store, *requests) == first
        assert await cancel_one(store, three.id) == (await store.apply([cancel(three)]))[0]
