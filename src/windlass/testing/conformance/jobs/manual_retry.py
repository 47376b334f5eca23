"""Manual retry: a retry of a finished job is a new job; a resume also copies its steps."""

from __future__ import annotations

import pytest

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN, ENDS, finished
from windlass.testing.factories import (
    append_records,
    checkpoint_record,
    claim_one,
    enqueue_one,
    get_one,
    make_job,
    read_events,
    settle_one,
    start_one,
)


class TestManualRetry:
    @pytest.mark.parametrize("end", ENDS)
    async def test_a_retry_is_a_new_job_that_points_back(self, store: Store, end: str) -> None:
        old = await finished(store, ENDS[end])

        new = await enqueue_one(store, retry_of=old.id)

        assert new.id != old.id
        assert (new.retry_of, new.retried_as) == (old.id, None)
        assert (new.state, new.attempt, new.retry_count) == (State.QUEUED, 0, 0)
        assert (await claim_one(store)).id == new.id

    async def test_a_retry_only_annotates_the_old_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        old = await finished(store)
        clock.advance(60)

        new = await enqueue_one(store, retry_of=old.id)

        now = await get_one(store, old.id)
        assert now.retried_as == new.id
        assert (now.state, now.ended_at, now.seq) == (old.state, old.ended_at, old.seq)
        assert now.error == old.error

    async def test_all_retries_share_the_first_jobs_lineage(self, store: Store) -> None:
        first = await finished(store)
        second = await finished(store, retry_of=first.id)
        third = await enqueue_one(store, retry_of=second.id)

        assert first.lineage == second.lineage == third.lineage == first.id
        assert (await get_one(store, third.id)).lineage == first.id
        assert third.retry_of == second.id

    async def test_a_job_has_at_most_one_active_retry(self, store: Store) -> None:
        old = await finished(store)
        retry = await enqueue_one(store, retry_of=old.id)

        [answer] = await store.enqueue([make_job(retry_of=old.id)])

        assert answer.status is EnqueueStatus.DUPLICATE
        assert answer.row is not None
        assert answer.row.id == retry.id
        assert (await get_one(store, old.id)).retried_as == retry.id

    async def test_a_lineage_has_at_most_one_active_job(self, store: Store) -> None:
        """Jobs of a lineage share a workspace, so only one of them may be active."""
        first = await finished(store)
        second = await finished(store, retry_of=first.id)
        third = await enqueue_one(store, retry_of=second.id)

        [answer] = await store.enqueue([make_job(retry_of=first.id)])

        assert answer.status is EnqueueStatus.DUPLICATE
        assert answer.row is not None
        assert answer.row.id == third.id

    async def test_a_retry_of_another_job_does_not_conflict(self, store: Store) -> None:
        one, other = await finished(store), await finished(store)
        await enqueue_one(store, retry_of=one.id)

        [answer] = await store.enqueue([make_job(retry_of=other.id)])

        assert answer.status is EnqueueStatus.CREATED

    async def test_a_later_item_of_the_call_returns_the_retried_job(self, store: Store) -> None:
        old = await finished(store, request_id="r")

        retry, again = await store.enqueue([make_job(retry_of=old.id), make_job(request_id="r")])

        assert again.status is EnqueueStatus.DUPLICATE
        assert retry.row is not None
        assert again.row is not None
        assert again.row.retried_as == retry.row.id

    async def test_a_retry_displaced_within_the_call_does_not_conflict(self, store: Store) -> None:
        old = await finished(store)
        key = {"unique_key": "k", "debounce": True}

        answers = await store.enqueue(
            [make_job(retry_of=old.id, **key), make_job(**key), make_job(retry_of=old.id)]
        )

        assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * 3

    async def test_a_bulk_enqueue_makes_at_most_one_active_retry(self, store: Store) -> None:
        old = await finished(store)

        answers = await store.enqueue([make_job(retry_of=old.id) for _ in range(3)])

        statuses = [answer.status for answer in answers]
        assert statuses == [EnqueueStatus.CREATED, *[EnqueueStatus.DUPLICATE] * 2]
        assert len({answer.row.id for answer in answers if answer.row}) == 1

    async def test_a_job_can_be_retried_again_after_its_retry_ended(self, store: Store) -> None:
        old = await finished(store)
        first = await finished(store, retry_of=old.id)

        second = await enqueue_one(store, retry_of=old.id)

        assert second.id != first.id
        assert (await get_one(store, old.id)).retried_as == second.id

    async def test_an_active_job_cannot_be_retried(self, store: Store) -> None:
        running = await start_one(store)

        [answer] = await store.enqueue([make_job(retry_of=running.id)])

        assert answer.status is EnqueueStatus.CONFLICT
        assert answer.error is not None
        assert await get_one(store, running.id) == running

    async def test_an_unknown_job_cannot_be_retried(self, store: Store) -> None:
        new = make_job(retry_of=uuid7())

        [answer] = await store.enqueue([new])

        assert answer.status is EnqueueStatus.REFUSED
        assert answer.error is not None
        assert answer.error.code == "not_found"
        assert await store.get([new.id]) == [None]

    async def test_a_retry_of_another_owners_job_is_refused_as_unknown(self, store: Store) -> None:
        foreign_job = await finished(store, owner="them")

        [foreign, unknown] = await store.enqueue(
            [make_job(owner="us", retry_of=foreign_job.id), make_job(owner="us", retry_of=uuid7())]
        )

        assert foreign.status is unknown.status is EnqueueStatus.REFUSED
        assert foreign.row is None
        assert (await get_one(store, foreign_job.id)).retried_as is None

    async def test_a_repeated_retry_is_the_same_job(self, store: Store) -> None:
        old = await finished(store)
        new = make_job(retry_of=old.id)

        [first] = await store.enqueue([new])
        [again] = await store.enqueue([new])

        assert (again.status, again.row) == (first.status, first.row)
        assert first.status is EnqueueStatus.CREATED

    # -- resume

    async def test_a_job_that_failed_after_a_step_can_resume(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, checkpoint_record(1, "script", b"text"))
        assert not (await get_one(store, job.id)).can_resume

        await settle_one(store, job, BROKEN)

        old = await get_one(store, job.id)
        assert (old.can_resume, old.last_step) == (True, "script")

    async def test_a_succeeded_job_or_one_without_steps_cannot_resume(self, store: Store) -> None:
        stepless = await finished(store)
        job = await start_one(store)
        await settle_one(store, job, Succeeded(), records=[checkpoint_record(1, "script", b"text")])

        assert not stepless.can_resume
        assert not (await get_one(store, job.id)).can_resume

    async def test_a_resume_starts_with_the_completed_steps(
        self, store: Store, clock: VirtualClock
    ) -> None:
        old = await start_one(store)
        await append_records(
            store,
            old,
            checkpoint_record(1, "script", b"text"),
            checkpoint_record(2, "voice", b"\x00sound"),
        )
        await settle_one(store, old, BROKEN)
        clock.advance(60)

        new = await enqueue_one(store, retry_of=old.id, resume=True)

        before, after = await store.checkpoints([old.id, new.id])
        assert before == after
        assert {step: point.value for step, point in after.items()} == {
            "script": b"text",
            "voice": b"\x00sound",
        }
        assert new.last_step == "voice"
        assert await get_one(store, new.id) == new

    async def test_a_plain_retry_starts_without_steps(self, store: Store) -> None:
        old = await start_one(store)
        await settle_one(store, old, BROKEN, records=[checkpoint_record(1, "script", b"text")])

        new = await enqueue_one(store, retry_of=old.id)

        assert await store.checkpoints([new.id]) == [{}]
        assert new.last_step is None

    async def test_the_copied_steps_are_independent(self, store: Store) -> None:
        old = await start_one(store)
        await settle_one(store, old, BROKEN, records=[checkpoint_record(1, "script", b"old")])
        await enqueue_one(store, retry_of=old.id, resume=True)
        new = await claim_one(store)

        await append_records(
            store,
            new,
            checkpoint_record(1, "script", b"new"),
            checkpoint_record(2, "voice", b"sound"),
        )
        await settle_one(store, new, Succeeded())
        before, after = await store.checkpoints([old.id, new.id])
        assert {step: point.value for step, point in before.items()} == {"script": b"old"}
        assert after["script"].value == b"new"

        await store.delete([old.id])
        [kept] = await store.checkpoints([new.id])
        assert sorted(kept) == ["script", "voice"]

    async def test_a_canceled_job_can_be_resumed(self, store: Store) -> None:
        old = await start_one(store)
        await append_records(store, old, checkpoint_record(1, "script", b"text"))
        await store.apply([CancelRequest(job_id=old.id)])
        await settle_one(store, old, Succeeded())
        assert (await get_one(store, old.id)).can_resume

        new = await enqueue_one(store, retry_of=old.id, resume=True)

        [steps] = await store.checkpoints([new.id])
        assert [point.value for point in steps.values()] == [b"text"]

    async def test_a_resumed_job_has_its_own_log(self, store: Store) -> None:
        old = await start_one(store)
        await settle_one(store, old, BROKEN, records=[checkpoint_record(1, "script", b"text")])

        new = await enqueue_one(store, retry_of=old.id, resume=True)

        log = await read_events(store, new.id)
        assert [event.data["status"] for event in log] == ["created", "queued"]
        assert [event.seq for event in log] == [1, 2]

    async def test_a_retry_can_be_delayed(self, store: Store, clock: VirtualClock) -> None:
        old = await finished(store)

        new = await enqueue_one(store, retry_of=old.id, resume=True, delay=30)

        assert (new.state, new.due_at) == (State.CREATED, clock.now() + 30_000_000)
