"""Records of an attempt are stored once, in order, while it holds its lease."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Failed, Released, Succeeded
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.event import LIFECYCLE, EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.core.size_limits import MAX_BLOB, MAX_EVENT, MAX_KEY
from windlass.store import AttemptRecords, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    checkpoint_record,
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    make_failure,
    progress_record,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)

RECORD_TYPES = frozenset(EventType) - LIFECYCLE  # types that attempts may record


async def bodies(store: Store, job_id: UUID) -> list[bytes | None]:
    """Return the bodies of the log events of this job, in order."""
    events = await read_events(store, job_id)
    return [event.body for event in events if event.type is EventType.LOG]


class TestAttemptRecords:
    async def test_an_empty_record_call_returns_no_results(self, store: Store) -> None:
        assert await store.record([]) == []

    async def test_records_become_events_in_order(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(store, job, log_record(1, "first"), log_record(2, "second"))
        await append_records(store, job, log_record(3, "third"))

        assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
        assert await bodies(store, job.id) == [b"first", b"second", b"third"]

    @pytest.mark.parametrize("kind", sorted(RECORD_TYPES))
    async def test_every_record_type_is_read_unchanged(self, store: Store, kind: EventType) -> None:
        job = await start_one(store, headers={"correlation-id": "c-1"})

        await append_records(
            store,
            job,
            Record(n=1, type=kind, body=b"\x00\xff\r\n", step="voice", status="running", phase="p"),
        )

        [event] = await read_events(store, job.id, after=job.seq)
        assert (event.type, event.body, event.seq) == (kind, b"\x00\xff\r\n", job.seq + 1)
        assert (event.job_id, event.correlation_id) == (job.id, "c-1")
        assert event.data["step"] == "voice"
        assert event.data["status"] == "running"
        assert event.data["phase"] == "p"

    async def test_an_event_may_have_no_body_or_an_empty_one(self, store: Store) -> None:
        job = await start_one(store)

        await append_records(store, job, log_record(1, body=None), log_record(2, body=b""))

        assert await bodies(store, job.id) == [None, b""]

    async def test_a_repeated_call_stores_nothing_twice(self, store: Store) -> None:
        job = await start_one(store)
        entry = [AttemptRecords(job.lease, (log_record(1, "first"), log_record(2, "second")))]

        first = await store.record(entry)
        again = await store.record(entry)

        assert again == first
        assert await bodies(store, job.id) == [b"first", b"second"]

    async def test_an_overlapping_call_stores_only_new_records(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, log_record(1, "first"), log_record(2, "second"))

        answer = await append_records(store, job, log_record(2, "second"), log_record(3, "third"))

        assert answer.applied
        assert await bodies(store, job.id) == [b"first", b"second", b"third"]

    async def test_a_repeated_number_is_dropped_even_with_another_body(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, log_record(1, "first"))

        await append_records(store, job, log_record(1, "otherwise"), progress_record(1, 50))

        assert await bodies(store, job.id) == [b"first"]
        assert (await get_one(store, job.id)).percent == 0

    async def test_record_numbers_may_have_gaps_but_event_numbers_have_none(
        self, store: Store
    ) -> None:
        job = await start_one(store)

        await append_records(store, job, log_record(3, "third"), log_record(7, "seventh"))
        await append_records(store, job, log_record(5, "fifth"), log_record(9, "ninth"))

        events = await read_events(store, job.id, after=job.seq)
        assert [event.seq - job.seq for event in events] == [1, 2, 3]
        assert await bodies(store, job.id) == [b"third", b"seventh", b"ninth"]

    async def test_record_numbers_restart_with_each_attempt(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(
            store, job, log_record(1, "of attempt 1"), log_record(2, "of attempt 1")
        )
        await settle_one(store, job, Released())

        job = await claim_one(store)
        await append_records(store, job, log_record(1, "of attempt 2"))

        assert await bodies(store, job.id) == [b"of attempt 1", b"of attempt 1", b"of attempt 2"]

    async def test_only_the_lease_holder_can_write_records(self, store: Store) -> None:
        job = await start_one(store)
        other_token = replace(job.lease, token=uuid7())
        other_fence = replace(job.lease, fence=job.fence + 1)

        answers = await store.record(
            [
                AttemptRecords(lease, (log_record(1, "not me"),))
                for lease in (other_token, other_fence)
            ]
        )

        assert [answer.status for answer in answers] == [Status.STALE, Status.STALE]
        assert await get_one(store, job.id) == job
        assert await bodies(store, job.id) == []

    async def test_a_worker_that_lost_its_lease_cannot_write_records(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await append_records(store, job, log_record(1, "before"))
        clock.advance(31)
        await sweep_all(store)

        answer = await append_records(
            store, job, log_record(2, "after"), checkpoint_record(3, "voice", b"late")
        )

        assert (answer.status, answer.state) == (Status.STALE, State.QUEUED)
        assert await bodies(store, job.id) == [b"before"]
        assert await store.checkpoints([job.id]) == [{}]

    async def test_a_finished_attempt_cannot_write_records(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())

        answer = await append_records(store, job, log_record(1, "one more thing"))

        assert (answer.status, answer.state) == (Status.STALE, State.SUCCEEDED)
        assert await bodies(store, job.id) == []

    async def test_an_attempt_with_a_cancel_request_can_write_records(self, store: Store) -> None:
        job = await start_one(store)
        await store.apply([CancelRequest(job_id=job.id)])

        answer = await append_records(store, job, log_record(1, "tidying up"))

        assert answer.applied
        assert await bodies(store, job.id) == [b"tidying up"]

    async def test_records_of_an_unknown_job_are_not_stored(self, store: Store) -> None:
        job = await start_one(store)

        [answer] = await store.record(
            [AttemptRecords(replace(job.lease, job_id=uuid7()), (log_record(1),))]
        )

        assert (answer.status, answer.state) == (Status.MISSING, None)

    async def test_records_of_many_attempts_in_one_call_have_results_in_order(
        self, store: Store
    ) -> None:
        jobs = [await enqueue_one(store) for _ in range(3)]
        first, second, third = await claim_all(store)
        await settle_one(store, second, Succeeded())

        answers = await store.record(
            [
                AttemptRecords(third.lease, (log_record(1, "third"),)),
                AttemptRecords(second.lease, (log_record(1, "second"),)),
                AttemptRecords(first.lease, (log_record(1, "first"),)),
                AttemptRecords(third.lease, (log_record(2, "third again"),)),
            ]
        )

        wanted = [Status.APPLIED, Status.STALE, Status.APPLIED, Status.APPLIED]
        assert [answer.status for answer in answers] == wanted
        logs = [await bodies(store, job.id) for job in jobs]
        assert logs == [[b"first"], [], [b"third", b"third again"]]

    async def test_a_settle_stores_records_that_were_not_sent_yet(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, log_record(1, "first"))

        await settle_one(
            store, job, Succeeded(), records=[log_record(1, "first"), log_record(2, "last record")]
        )

        assert await bodies(store, job.id) == [b"first", b"last record"]
        [*_, final] = await read_events(store, job.id)
        assert final.type is EventType.JOB_COMPLETED

    async def test_the_records_of_a_stale_settle_are_not_stored(self, store: Store) -> None:
        stale = await start_one(store)
        await settle_one(store, stale, Released())
        await claim_one(store, worker="worker-2")

        answer = await settle_one(
            store,
            stale,
            Succeeded(),
            records=[log_record(1, "stale"), checkpoint_record(2, "voice", b"stale")],
        )

        assert answer.status is Status.STALE
        assert await bodies(store, stale.id) == []
        assert await store.checkpoints([stale.id]) == [{}]

    # -- steps

    async def test_a_step_result_is_kept_for_later_attempts(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        at = clock.advance(2)
        await append_records(store, job, checkpoint_record(1, "script", b"text"))
        await settle_one(store, job, Failed(failure=make_failure(), delay=0))
        job = await claim_one(store)
        await append_records(store, job, checkpoint_record(1, "voice", b"\x00sound"))

        [steps] = await store.checkpoints([job.id])

        assert {step: point.value for step, point in steps.items()} == {
            "script": b"text",
            "voice": b"\x00sound",
        }
        assert (steps["script"].step, steps["script"].attempt, steps["script"].at) == (
            "script",
            1,
            at,
        )
        assert steps["voice"].attempt == 2
        assert (await get_one(store, job.id)).last_step == "voice"

    async def test_a_step_run_again_has_its_newest_result(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(
            store, job, checkpoint_record(1, "voice", b"old"), checkpoint_record(2, "voice", b"new")
        )

        [steps] = await store.checkpoints([job.id])

        assert [point.value for point in steps.values()] == [b"new"]

    async def test_checkpoints_are_returned_in_the_order_of_the_ids(self, store: Store) -> None:
        first = await start_one(store)
        second = await start_one(store)
        await append_records(store, first, checkpoint_record(1, "voice", b"1"))
        await append_records(store, second, checkpoint_record(1, "voice", b"2"))

        found = await store.checkpoints([second.id, uuid7(), first.id])

        assert [{step: point.value for step, point in each.items()} for each in found] == [
            {"voice": b"2"},
            {},
            {"voice": b"1"},
        ]
        assert await store.checkpoints([]) == []

    # -- sizes

    async def test_an_event_of_the_maximum_size_is_stored(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(store, job, log_record(1, body=b"x" * MAX_EVENT))

        assert answer.applied
        assert await bodies(store, job.id) == [b"x" * MAX_EVENT]

    async def test_an_oversize_event_refuses_all_records_of_its_attempt(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(
            store, job, log_record(1, "small"), log_record(2, body=b"x" * (MAX_EVENT + 1))
        )

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "too_large"
        assert await get_one(store, job.id) == job
        assert await bodies(store, job.id) == []

    async def test_a_checkpoint_of_the_maximum_size_is_stored(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(store, job, checkpoint_record(1, "voice", b"x" * MAX_BLOB))

        assert answer.applied
        [steps] = await store.checkpoints([job.id])
        assert len(steps["voice"].value) == MAX_BLOB

    async def test_an_oversize_checkpoint_is_refused(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(
            store, job, checkpoint_record(1, "voice", b"x" * (MAX_BLOB + 1))
        )

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "too_large"
        assert await store.checkpoints([job.id]) == [{}]

    async def test_a_checkpoint_without_a_step_name_is_refused(self, store: Store) -> None:
        job = await start_one(store)

        answer = await append_records(store, job, checkpoint_record(1, "", b"whose?"))

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "invalid_argument"

    @pytest.mark.parametrize("field", ["step", "stage"])
    async def test_a_name_that_is_too_long_is_refused(self, store: Store, field: str) -> None:
        job = await start_one(store)

        answer = await append_records(
            store, job, progress_record(1, 50, **{field: "x" * (MAX_KEY + 1)})
        )

        assert answer.status is Status.REFUSED
        assert await get_one(store, job.id) == job

    @pytest.mark.parametrize("field", ["step", "stage", "phase", "status"])
    async def test_invalid_text_is_refused_without_affecting_other_attempts(
        self, store: Store, field: str
    ) -> None:
        await enqueue_one(store)
        await enqueue_one(store)
        bad, good = await claim_all(store)

        answers = await store.record(
            [
                AttemptRecords(
                    bad.lease, (progress_record(1, 50, **{field: "half a pair: \ud83d"}),)
                ),
                AttemptRecords(good.lease, (progress_record(1, 50),)),
            ]
        )

        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await get_one(store, bad.id) == bad

    @pytest.mark.parametrize("kind", sorted(LIFECYCLE))
    async def test_event_types_of_the_store_are_refused(
        self, store: Store, kind: EventType
    ) -> None:
        job = await start_one(store)

        answer = await append_records(store, job, Record(n=1, type=kind, body=b"forged"))

        assert answer.status is Status.REFUSED
        assert await get_one(store, job.id) == job

    async def test_an_oversize_record_does_not_affect_other_attempts(self, store: Store) -> None:
        await enqueue_one(store)
        await enqueue_one(store)
        loud, quiet = await claim_all(store)

        answers = await store.record(
            [
                AttemptRecords(loud.lease, (log_record(1, body=b"x" * (MAX_EVENT + 1)),)),
                AttemptRecords(quiet.lease, (log_record(1, "other"),)),
            ]
        )

        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await bodies(store, quiet.id) == [b"other"]
