"""Unique keys: of one owner and task, at most one active job has a given key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Aborted, Failed, Outcome, Released, Snoozed, Succeeded
from windlass.core.errors import ConflictError
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    enqueue_one,
    get_one,
    make_failure,
    make_job,
    settle_one,
    start_one,
    sweep_all,
)

CREATED, DUPLICATE = EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE


class TestUniqueness:
    async def test_a_second_job_with_an_active_key_is_a_duplicate(self, store: Store) -> None:
        first = await enqueue_one(store, unique_key="report")
        new = make_job(unique_key="report", payload=b'"newer"')
        [answer] = await store.enqueue([new])
        assert (answer.status, answer.row) == (DUPLICATE, first)
        assert await store.get([new.id]) == [None]
        assert [job.id for job in await claim_all(store)] == [first.id]

    async def test_a_key_is_unique_within_one_bulk_enqueue(self, store: Store) -> None:
        first, other, again, plain = await store.enqueue(
            [
                make_job(unique_key="a"),
                make_job(unique_key="b"),
                make_job(unique_key="a"),
                make_job(),
            ]
        )
        assert [first.status, other.status, plain.status] == [CREATED] * 3
        assert (again.status, again.row) == (DUPLICATE, first.row)
        assert len(await claim_all(store)) == 3

    async def test_a_bulk_enqueue_respects_the_keys_of_earlier_calls(self, store: Store) -> None:
        first = await enqueue_one(store, unique_key="a")
        answers = await store.enqueue([make_job(unique_key=key) for key in "bac"])
        assert [answer.status for answer in answers] == [CREATED, DUPLICATE, CREATED]
        assert answers[1].row == first

    async def test_one_of_many_concurrent_duplicates_is_stored(self, store: Store) -> None:
        others = [store.twin() for _ in range(4)]
        new = [make_job(unique_key="only-one") for _ in range(40)]
        calls = await asyncio.gather(
            *(others[n % 4].enqueue([job, make_job()]) for n, job in enumerate(new))
        )
        for other in others:
            await other.close()
        keyed = [answer for answer, _ in calls]
        assert sorted(answer.status for answer in keyed) == [CREATED, *[DUPLICATE] * 39]
        assert len({answer.row.id for answer in keyed if answer.row is not None}) == 1
        assert [plain.status for _, plain in calls] == [CREATED] * 40

    async def test_owners_and_tasks_do_not_share_keys(self, store: Store) -> None:
        answers = await store.enqueue(
            [
                make_job(owner=owner, task=task, unique_key="k")
                for owner in ("", "ada", "bob")
                for task in ("mail", "report")
            ]
        )
        assert [answer.status for answer in answers] == [CREATED] * 6

    async def test_a_key_holds_across_queues(self, store: Store) -> None:
        await enqueue_one(store, queue="fast", unique_key="k")
        [answer] = await store.enqueue([make_job(queue="slow", unique_key="k")])
        assert answer.status is DUPLICATE

    async def test_jobs_without_a_key_are_never_duplicates(self, store: Store) -> None:
        answers = await store.enqueue([make_job() for _ in range(3)])
        assert [answer.status for answer in answers] == [CREATED] * 3

    async def test_an_empty_key_is_a_key(self, store: Store) -> None:
        first, again = await store.enqueue([make_job(unique_key=""), make_job(unique_key="")])
        assert (again.status, again.row) == (DUPLICATE, first.row)

    # -- lifetime of a key

    @pytest.mark.parametrize("waiting", [{}, {"delay": 60.0}, {"hold": True}])
    async def test_a_waiting_job_holds_its_key(
        self, store: Store, waiting: dict[str, float]
    ) -> None:
        await enqueue_one(store, unique_key="k", **waiting)
        [answer] = await store.enqueue([make_job(unique_key="k")])
        assert answer.status is DUPLICATE

    @pytest.mark.parametrize(
        "outcome", [Released(), Snoozed(delay=5.0), Failed(failure=make_failure())]
    )
    async def test_a_job_holds_its_key_through_all_its_attempts(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store, unique_key="k")
        [while_running] = await store.enqueue([make_job(unique_key="k")])
        await settle_one(store, row, outcome)
        [between] = await store.enqueue([make_job(unique_key="k")])
        assert while_running.status is between.status is DUPLICATE
        assert between.row == await get_one(store, row.id)

    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), Failed(failure=make_failure(terminal=True)), Aborted()],
        ids=["succeeded", "failed", "canceled"],
    )
    async def test_a_key_is_free_again_once_its_job_is_final(
        self, store: Store, outcome: Outcome
    ) -> None:
        row = await start_one(store, unique_key="k")
        await settle_one(store, row, outcome)
        [answer] = await store.enqueue([make_job(unique_key="k")])
        assert answer.status is CREATED

    async def test_a_canceled_or_expired_job_frees_its_key(
        self, store: Store, clock: VirtualClock
    ) -> None:
        canceled = await enqueue_one(store, unique_key="a")
        await enqueue_one(store, unique_key="b", expires_in=5.0)
        await cancel_one(store, canceled.id)
        clock.advance(5)
        await sweep_all(store)
        answers = await store.enqueue([make_job(unique_key="a"), make_job(unique_key="b")])
        assert [answer.status for answer in answers] == [CREATED, CREATED]

    # -- debounce: the newest request wins

    @pytest.mark.parametrize("waiting", [{}, {"delay": 60.0}, {"hold": True}])
    async def test_a_debounced_job_displaces_a_waiting_one(
        self, store: Store, clock: VirtualClock, waiting: dict[str, float]
    ) -> None:
        old = await enqueue_one(store, unique_key="k", **waiting)
        clock.advance(1)
        [answer] = await store.enqueue([make_job(unique_key="k", debounce=True, payload=b"2")])
        assert answer.status is CREATED
        replaced = await get_one(store, old.id)
        assert (replaced.state, replaced.ended_at) == (State.CANCELED, clock.now())
        assert replaced.cancel_reason
        [claimed] = await claim_all(store)
        assert (claimed.id, claimed.payload) == (answer.row and answer.row.id, b"2")

    async def test_a_debounced_job_displaces_a_job_between_attempts(self, store: Store) -> None:
        row = await start_one(store, unique_key="k")
        await settle_one(store, row, Snoozed(delay=60.0))
        [answer] = await store.enqueue([make_job(unique_key="k", debounce=True)])
        assert answer.status is CREATED
        assert (await get_one(store, row.id)).state is State.CANCELED

    async def test_of_debounced_jobs_in_one_bulk_the_last_stays(self, store: Store) -> None:
        new = [make_job(unique_key="k", debounce=True) for _ in range(3)]
        answers = await store.enqueue(new)
        assert [answer.status for answer in answers] == [CREATED] * 3
        rows = await store.get([job.id for job in new])
        assert [row and row.state for row in rows] == [
            State.CANCELED,
            State.CANCELED,
            State.QUEUED,
        ]

    async def test_a_running_job_is_not_displaced(self, store: Store) -> None:
        row = await start_one(store, unique_key="k")
        [answer] = await store.enqueue([make_job(unique_key="k", debounce=True)])
        assert (answer.status, answer.row) == (DUPLICATE, row)
        assert not (await get_one(store, row.id)).cancel_requested

    async def test_a_repeated_debounce_displaces_nothing(self, store: Store) -> None:
        await enqueue_one(store, unique_key="k")
        new = make_job(unique_key="k", debounce=True)
        [first] = await store.enqueue([new])
        [again] = await store.enqueue([new])
        assert (again.status, again.row) == (CREATED, first.row)
        assert [job.id for job in await claim_all(store)] == [new.id]

    # -- jobs enqueued together that depend on a duplicate

    @pytest.mark.parametrize("key", [{"unique_key": "k"}, {"request_id": "r", "digest": b"d"}])
    @pytest.mark.parametrize("before", [True, False], ids=["stored before", "in the same call"])
    async def test_a_dependency_on_a_duplicate_is_refused_with_both_ids(
        self, store: Store, key: dict[str, Any], before: bool
    ) -> None:
        other, new = make_job(**key), make_job(**key)
        if before:
            await store.enqueue([other])
        child = make_job(depends_on=(new.id,))
        wanted = [new, child] if before else [other, new, child]
        for answer in await store.enqueue(wanted, atomic=True):
            assert answer.status is EnqueueStatus.REFUSED
            assert isinstance(answer.error, ConflictError)
            message = str(answer.error)
            assert f"job {new.id} of task 'test.noop'" in message
            assert f"held by job {other.id}" in message
            assert next(iter(key.values())) in message
        stored = [row is not None for row in await store.get([other.id, new.id, child.id])]
        assert stored == [before, False, False]

    async def test_one_request_id_for_two_jobs_enqueued_together_refuses_both(
        self, store: Store
    ) -> None:
        first, second = (make_job(request_id="r", digest=digest) for digest in (b"1", b"2"))
        answers = await store.enqueue([first, second], atomic=True)
        assert [answer.status for answer in answers] == [EnqueueStatus.REFUSED] * 2
        assert await store.get([first.id, second.id]) == [None, None]

    async def test_a_debounced_job_displaces_one_enqueued_with_it(self, store: Store) -> None:
        first, second = make_job(unique_key="k"), make_job(unique_key="k", debounce=True)
        child = make_job(depends_on=(second.id,))
        answers = await store.enqueue([first, second, child], atomic=True)
        assert [answer.status for answer in answers] == [EnqueueStatus.CREATED] * 3
        assert (await get_one(store, first.id)).state is State.CANCELED
        assert (await get_one(store, child.id)).waiting_for == 1
