"""What a running attempt says is stored once, in order, and only while it holds its lease."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Failed, Released, Succeeded
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.event import LIFECYCLE, EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.core.sizes import MAX_BLOB, MAX_EVENT, MAX_KEY
from windlass.store import Saying, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    note,
    progress,
    read_events,
    say,
    settle_one,
    start_one,
    step_done,
    sweep_all,
)

SAID = frozenset(EventType) - LIFECYCLE  # what an attempt may say


async def bodies(store: Store, job_id: UUID) -> list[bytes | None]:
    """The bodies of the log lines that this job's attempts wrote, in order."""
    events = await read_events(store, job_id)
    return [event.body for event in events if event.type is EventType.LOG]


class TestRecording:
    async def test_nothing_said_is_nothing_answered(self, store: Store) -> None:
        assert await store.record([]) == []

    async def test_what_is_said_becomes_events_in_its_order(self, store: Store) -> None:
        job = await start_one(store)

        answer = await say(store, job, note(1, "first"), note(2, "second"))
        await say(store, job, note(3, "third"))

        assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
        assert await bodies(store, job.id) == [b"first", b"second", b"third"]

    @pytest.mark.parametrize("kind", sorted(SAID))
    async def test_every_kind_comes_back_as_it_was_said(
        self, store: Store, kind: EventType
    ) -> None:
        job = await start_one(store, headers={"correlation-id": "c-1"})

        await say(
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

        await say(store, job, note(1, body=None), note(2, body=b""))

        assert await bodies(store, job.id) == [None, b""]

    async def test_a_repeated_call_stores_nothing_twice(self, store: Store) -> None:
        job = await start_one(store)
        saying = [Saying(job.lease, (note(1, "first"), note(2, "second")))]

        first = await store.record(saying)
        again = await store.record(saying)

        assert again == first
        assert await bodies(store, job.id) == [b"first", b"second"]

    async def test_of_a_call_that_overlaps_the_last_one_only_the_rest_is_stored(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        await say(store, job, note(1, "first"), note(2, "second"))

        answer = await say(store, job, note(2, "second"), note(3, "third"))

        assert answer.applied
        assert await bodies(store, job.id) == [b"first", b"second", b"third"]

    async def test_a_number_seen_before_is_dropped_even_with_other_words(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        await say(store, job, note(1, "first"))

        await say(store, job, note(1, "otherwise"), progress(1, 50))

        assert await bodies(store, job.id) == [b"first"]
        assert (await get_one(store, job.id)).percent == 0

    async def test_numbers_may_skip_but_their_events_do_not(self, store: Store) -> None:
        job = await start_one(store)

        await say(store, job, note(3, "third"), note(7, "seventh"))
        await say(store, job, note(5, "fifth"), note(9, "ninth"))

        events = await read_events(store, job.id, after=job.seq)
        assert [event.seq - job.seq for event in events] == [1, 2, 3]
        assert await bodies(store, job.id) == [b"third", b"seventh", b"ninth"]

    async def test_each_attempt_counts_from_one_again(self, store: Store) -> None:
        job = await start_one(store)
        await say(store, job, note(1, "of attempt 1"), note(2, "of attempt 1"))
        await settle_one(store, job, Released())

        job = await claim_one(store)
        await say(store, job, note(1, "of attempt 2"))

        assert await bodies(store, job.id) == [b"of attempt 1", b"of attempt 1", b"of attempt 2"]

    async def test_only_the_holder_of_the_lease_is_heard(self, store: Store) -> None:
        job = await start_one(store)
        other_token = replace(job.lease, token=uuid7())
        other_fence = replace(job.lease, fence=job.fence + 1)

        answers = await store.record(
            [Saying(lease, (note(1, "not me"),)) for lease in (other_token, other_fence)]
        )

        assert [answer.status for answer in answers] == [Status.STALE, Status.STALE]
        assert await get_one(store, job.id) == job
        assert await bodies(store, job.id) == []

    async def test_a_lost_lease_is_not_heard(self, store: Store, clock: VirtualClock) -> None:
        job = await start_one(store)
        await say(store, job, note(1, "before"))
        clock.advance(31)
        await sweep_all(store)

        answer = await say(store, job, note(2, "after"), step_done(3, "voice", b"late"))

        assert (answer.status, answer.state) == (Status.STALE, State.QUEUED)
        assert await bodies(store, job.id) == [b"before"]
        assert await store.checkpoints([job.id]) == [{}]

    async def test_a_finished_attempt_is_not_heard(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())

        answer = await say(store, job, note(1, "one more thing"))

        assert (answer.status, answer.state) == (Status.STALE, State.SUCCEEDED)
        assert await bodies(store, job.id) == []

    async def test_an_attempt_asked_to_cancel_is_heard_until_it_ends(self, store: Store) -> None:
        job = await start_one(store)
        await store.cancel([CancelRequest(job_id=job.id)])

        answer = await say(store, job, note(1, "tidying up"))

        assert answer.applied
        assert await bodies(store, job.id) == [b"tidying up"]

    async def test_of_an_unknown_job_nothing_is_stored(self, store: Store) -> None:
        job = await start_one(store)

        [answer] = await store.record([Saying(replace(job.lease, job_id=uuid7()), (note(1),))])

        assert (answer.status, answer.state) == (Status.MISSING, None)

    async def test_many_attempts_speak_in_one_call_and_are_answered_in_order(
        self, store: Store
    ) -> None:
        jobs = [await enqueue_one(store) for _ in range(3)]
        first, second, third = await claim_all(store)
        await settle_one(store, second, Succeeded())

        answers = await store.record(
            [
                Saying(third.lease, (note(1, "third"),)),
                Saying(second.lease, (note(1, "second"),)),
                Saying(first.lease, (note(1, "first"),)),
                Saying(third.lease, (note(2, "third again"),)),
            ]
        )

        wanted = [Status.APPLIED, Status.STALE, Status.APPLIED, Status.APPLIED]
        assert [answer.status for answer in answers] == wanted
        told = [await bodies(store, job.id) for job in jobs]
        assert told == [[b"first"], [], [b"third", b"third again"]]

    async def test_the_settle_brings_what_was_not_yet_said(self, store: Store) -> None:
        job = await start_one(store)
        await say(store, job, note(1, "first"))

        await settle_one(store, job, Succeeded(), records=[note(1, "first"), note(2, "last words")])

        assert await bodies(store, job.id) == [b"first", b"last words"]
        [*_, final] = await read_events(store, job.id)
        assert final.type is EventType.JOB_COMPLETED

    async def test_a_stale_settle_brings_nothing(self, store: Store) -> None:
        stale = await start_one(store)
        await settle_one(store, stale, Released())
        await claim_one(store, worker="worker-2")

        answer = await settle_one(
            store, stale, Succeeded(), records=[note(1, "ghost"), step_done(2, "voice", b"ghost")]
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
        await say(store, job, step_done(1, "script", b"text"))
        await settle_one(store, job, Failed(failure=make_failure(), delay=0))
        job = await claim_one(store)
        await say(store, job, step_done(1, "voice", b"\x00sound"))

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
        await say(store, job, step_done(1, "voice", b"old"), step_done(2, "voice", b"new"))

        [steps] = await store.checkpoints([job.id])

        assert [point.value for point in steps.values()] == [b"new"]

    async def test_checkpoints_are_answered_in_the_order_asked(self, store: Store) -> None:
        first = await start_one(store)
        second = await start_one(store)
        await say(store, first, step_done(1, "voice", b"1"))
        await say(store, second, step_done(1, "voice", b"2"))

        found = await store.checkpoints([second.id, uuid7(), first.id])

        assert [{step: point.value for step, point in each.items()} for each in found] == [
            {"voice": b"2"},
            {},
            {"voice": b"1"},
        ]
        assert await store.checkpoints([]) == []

    # -- sizes

    async def test_an_event_as_large_as_allowed_is_stored(self, store: Store) -> None:
        job = await start_one(store)

        answer = await say(store, job, note(1, body=b"x" * MAX_EVENT))

        assert answer.applied
        assert await bodies(store, job.id) == [b"x" * MAX_EVENT]

    async def test_an_event_larger_than_that_is_refused_with_its_whole_saying(
        self, store: Store
    ) -> None:
        job = await start_one(store)

        answer = await say(store, job, note(1, "small"), note(2, body=b"x" * (MAX_EVENT + 1)))

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "too_large"
        assert await get_one(store, job.id) == job
        assert await bodies(store, job.id) == []

    async def test_a_checkpoint_as_large_as_allowed_is_stored(self, store: Store) -> None:
        job = await start_one(store)

        answer = await say(store, job, step_done(1, "voice", b"x" * MAX_BLOB))

        assert answer.applied
        [steps] = await store.checkpoints([job.id])
        assert len(steps["voice"].value) == MAX_BLOB

    async def test_a_checkpoint_larger_than_that_is_refused(self, store: Store) -> None:
        job = await start_one(store)

        answer = await say(store, job, step_done(1, "voice", b"x" * (MAX_BLOB + 1)))

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "too_large"
        assert await store.checkpoints([job.id]) == [{}]

    async def test_a_checkpoint_without_the_name_of_its_step_is_refused(self, store: Store) -> None:
        job = await start_one(store)

        answer = await say(store, job, step_done(1, "", b"whose?"))

        assert answer.status is Status.REFUSED
        assert answer.error is not None
        assert answer.error.code == "invalid_argument"

    @pytest.mark.parametrize("field", ["step", "stage"])
    async def test_a_name_that_is_too_long_is_refused(self, store: Store, field: str) -> None:
        job = await start_one(store)

        answer = await say(store, job, progress(1, 50, **{field: "x" * (MAX_KEY + 1)}))

        assert answer.status is Status.REFUSED
        assert await get_one(store, job.id) == job

    @pytest.mark.parametrize("field", ["step", "stage", "phase", "status"])
    async def test_what_is_no_text_is_refused_and_its_neighbours_are_heard(
        self, store: Store, field: str
    ) -> None:
        await enqueue_one(store)
        await enqueue_one(store)
        bad, good = await claim_all(store)

        answers = await store.record(
            [
                Saying(bad.lease, (progress(1, 50, **{field: "half a pair: \ud83d"}),)),
                Saying(good.lease, (progress(1, 50),)),
            ]
        )

        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await get_one(store, bad.id) == bad

    @pytest.mark.parametrize("kind", sorted(LIFECYCLE))
    async def test_what_only_the_store_may_tell_is_refused(
        self, store: Store, kind: EventType
    ) -> None:
        job = await start_one(store)

        answer = await say(store, job, Record(n=1, type=kind, body=b"I say so"))

        assert answer.status is Status.REFUSED
        assert await get_one(store, job.id) == job

    async def test_one_that_is_too_large_does_not_silence_its_neighbours(
        self, store: Store
    ) -> None:
        await enqueue_one(store)
        await enqueue_one(store)
        loud, quiet = await claim_all(store)

        answers = await store.record(
            [
                Saying(loud.lease, (note(1, body=b"x" * (MAX_EVENT + 1)),)),
                Saying(quiet.lease, (note(1, "heard"),)),
            ]
        )

        assert [answer.status for answer in answers] == [Status.REFUSED, Status.APPLIED]
        assert await bodies(store, quiet.id) == [b"heard"]
