"""Retention: finished jobs are deleted with all their data after a set time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Aborted, Outcome, Snoozed, Succeeded
from windlass.core.decisions.transition import Status
from windlass.core.errors import InvalidArgumentError
from windlass.core.ids import uuid7
from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.versioned_record import Put
from windlass.store import DAY, Pruned, Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN, finished
from windlass.testing.factories import (
    checkpoint_record,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    make_job,
    read_events,
    settle_one,
    start_one,
)

FOR_GOOD = Retention(succeeded=0, canceled=0, failed=0, log=0, rollups=0)
A_DAY = Retention(succeeded=DAY, canceled=DAY, failed=DAY, log=0, rollups=0)
OUTCOMES: dict[State, Outcome] = {
    State.SUCCEEDED: Succeeded(),
    State.FAILED: BROKEN,
    State.CANCELED: Aborted(),
}


async def kept(store: Store, ids: Sequence[UUID]) -> list[bool]:
    return [row is not None for row in await store.get(ids)]


class TestRetention:
    @pytest.mark.parametrize("state", OUTCOMES)
    async def test_a_finished_job_is_pruned_after_its_retention_time(
        self, store: Store, clock: VirtualClock, state: State
    ) -> None:
        job = await finished(store, OUTCOMES[state])

        clock.advance(DAY - 1)
        assert await store.prune(A_DAY, limit=10) == Pruned()
        assert await kept(store, [job.id]) == [True]

        clock.advance(2)
        assert await store.prune(A_DAY, limit=10) == Pruned(jobs=1)
        assert await kept(store, [job.id]) == [False]

    @pytest.mark.parametrize("state", OUTCOMES)
    async def test_each_final_state_has_its_own_retention_time(
        self, store: Store, clock: VirtualClock, state: State
    ) -> None:
        jobs = {each: await finished(store, outcome) for each, outcome in OUTCOMES.items()}
        clock.advance(2 * DAY)

        only = Retention(**{"succeeded": 0, "failed": 0, "canceled": 0, "log": 0, state: DAY})
        await store.prune(only, limit=10)

        found = await kept(store, [job.id for job in jobs.values()])
        assert found == [each is not state for each in jobs]

    async def test_retention_counts_from_the_end_of_a_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store, lease=10 * DAY)
        clock.advance(5 * DAY)
        await settle_one(store, job, Succeeded())

        clock.advance(DAY / 2)

        assert await store.prune(A_DAY, limit=10) == Pruned()

    async def test_zero_retention_keeps_jobs_forever(
        self, store: Store, clock: VirtualClock
    ) -> None:
        jobs = [await finished(store, outcome) for outcome in OUTCOMES.values()]
        clock.advance(10_000 * DAY)

        assert await store.prune(FOR_GOOD, limit=10) == Pruned()

        assert all(await kept(store, [job.id for job in jobs]))

    async def test_a_negative_retention_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError):
            Retention(failed=-1)

    async def test_an_active_job_is_never_pruned_however_old(
        self, store: Store, clock: VirtualClock
    ) -> None:
        running = await start_one(store)
        snoozing = await start_one(store)
        await settle_one(store, snoozing, Snoozed(delay=1), records=[log_record(1, "said")])
        held = await enqueue_one(store, hold=True)
        queued = await enqueue_one(store)
        clock.advance(10_000 * DAY)

        tight = Retention(succeeded=1, canceled=1, failed=1, log=1, rollups=0)
        assert await store.prune(tight, limit=10) == Pruned()

        jobs = [running, snoozing, held, queued]
        assert all(await kept(store, [job.id for job in jobs]))
        log = await read_events(store, snoozing.id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))

    async def test_a_limited_prune_deletes_the_oldest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        jobs = []
        for outcome in (BROKEN, Succeeded(), Aborted(), Succeeded(), BROKEN):
            jobs.append(await finished(store, outcome))
            clock.advance(60)
        clock.advance(DAY)
        ids = [job.id for job in jobs]

        assert await store.prune(A_DAY, limit=2) == Pruned(jobs=2)
        assert await kept(store, ids) == [False, False, True, True, True]
        assert await store.prune(A_DAY, limit=2) == Pruned(jobs=2)
        assert await store.prune(A_DAY, limit=2) == Pruned(jobs=1)
        assert await store.prune(A_DAY, limit=2) == Pruned()
        assert not any(await kept(store, ids))

    async def test_a_prune_deletes_all_data_of_a_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store, payload=b"x" * 10_000, tags=("film",))
        left = [log_record(1, "said"), checkpoint_record(2, "voice", b"sound")]
        await settle_one(store, job, BROKEN, records=left)
        clock.advance(2 * DAY)

        await store.prune(A_DAY, limit=10)

        assert await store.events(job.id) is None
        assert await store.insights.attempts(job.id) is None
        assert await store.checkpoints([job.id]) == [{}]
        assert (await store.find(JobQuery(tags=frozenset({"film"})))).rows == []

    async def test_the_request_id_of_a_pruned_job_is_free(
        self, store: Store, clock: VirtualClock
    ) -> None:
        values: dict[str, Any] = {"request_id": "order-7", "owner": "ana"}
        old = await finished(store, **values, digest=b"1")
        [answer] = await store.enqueue([make_job(**values, digest=b"1")])
        assert answer.status is EnqueueStatus.DUPLICATE
        clock.advance(2 * DAY)
        await store.prune(A_DAY, limit=10)

        [answer] = await store.enqueue([make_job(**values, digest=b"2")])

        assert answer.status is EnqueueStatus.CREATED
        assert answer.row is not None
        assert answer.row.id != old.id

    async def test_the_id_of_a_pruned_job_is_free(self, store: Store, clock: VirtualClock) -> None:
        new = make_job(payload=b"the same")
        await store.enqueue([new])
        await settle_one(store, await claim_one(store), BROKEN, records=[log_record(1, "old")])
        clock.advance(2 * DAY)
        await store.prune(A_DAY, limit=10)

        [answer] = await store.enqueue([new])

        assert answer.status is EnqueueStatus.CREATED
        assert [event.seq for event in await read_events(store, new.id)] == [1, 2]
        assert (await claim_one(store)).id == new.id

    async def test_a_retry_stays_when_its_original_is_pruned(
        self, store: Store, clock: VirtualClock
    ) -> None:
        old = await finished(store)
        new = await enqueue_one(store, retry_of=old.id)
        clock.advance(2 * DAY)

        assert await store.prune(A_DAY, limit=10) == Pruned(jobs=1)

        assert await get_one(store, new.id) == new
        assert new.lineage == old.id

    # -- logs

    async def test_logs_are_pruned_before_their_jobs(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, BROKEN, records=[log_record(1, "said")])
        clock.advance(2 * DAY)

        pruned = await store.prune(Retention(failed=90 * DAY, log=DAY), limit=10)

        assert pruned == Pruned(logs=1)
        row = await get_one(store, job.id)
        assert row.log_floor > 0
        assert fold(await read_events(store, job.id)) == expected_fold(row)
        assert await store.prune(Retention(failed=90 * DAY, log=DAY), limit=10) == Pruned()

    async def test_a_recent_log_is_not_pruned(self, store: Store, clock: VirtualClock) -> None:
        job = await start_one(store)
        await settle_one(store, job, BROKEN, records=[log_record(1, "said")])
        before = await read_events(store, job.id)
        clock.advance(DAY - 1)

        assert await store.prune(Retention(log=DAY), limit=10) == Pruned()

        assert await read_events(store, job.id) == before

    async def test_a_prune_deletes_at_most_limit_logs(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for _ in range(3):
            job = await start_one(store)
            await settle_one(store, job, Succeeded(), records=[log_record(1, "said")])
            clock.advance(1)
        clock.advance(2 * DAY)
        retention = Retention(log=DAY)

        pruned = [(await store.prune(retention, limit=2)).logs for _ in range(3)]

        assert pruned == [2, 1, 0]

    async def test_steps_stay_when_the_log_is_pruned(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, BROKEN, records=[checkpoint_record(1, "voice", b"sound")])
        clock.advance(2 * DAY)

        await store.prune(Retention(log=DAY), limit=10)

        [steps] = await store.checkpoints([job.id])
        assert steps["voice"].value == b"sound"

    async def test_expired_records_are_pruned(self, store: Store, clock: VirtualClock) -> None:
        await store.put_records(
            [
                Put(kind="ticket", key="short", value=b"1", ttl=10),
                Put(kind="ticket", key="long", value=b"1", ttl=1000),
                Put(kind="ticket", key="for good", value=b"1"),
            ]
        )
        clock.advance(11)

        assert await store.prune(FOR_GOOD, limit=10) == Pruned(records=1)

        assert [entry.key for entry in await store.list_records("ticket")] == ["for good", "long"]

    async def test_old_rollups_are_pruned(self, store: Store, clock: VirtualClock) -> None:
        await settle_one(store, await start_one(store), Succeeded())
        clock.advance(3 * DAY)
        await settle_one(store, await start_one(store), Succeeded())
        kept = Retention(succeeded=0, failed=0, canceled=0, log=0, rollups=2 * DAY)

        assert await store.prune(kept, limit=10) == Pruned(rollups=1)

        assert len(await store.insights.rollups(0, clock.now() + 1)) == 1

    # -- delete

    @pytest.mark.parametrize("state", OUTCOMES)
    async def test_a_finished_job_can_be_deleted_at_once(self, store: Store, state: State) -> None:
        job = await start_one(store, request_id="order-7")
        left = [log_record(1, "said"), checkpoint_record(2, "voice", b"sound")]
        await settle_one(store, job, OUTCOMES[state], records=left)

        [answer] = await store.delete([job.id])

        assert (answer.status, answer.state) == (Status.APPLIED, state)
        assert await kept(store, [job.id]) == [False]
        assert await store.events(job.id) is None
        assert await store.checkpoints([job.id]) == [{}]
        assert (await enqueue_one(store, request_id="order-7")).id != job.id

    async def test_an_active_job_is_not_deleted(self, store: Store) -> None:
        running = await start_one(store)
        snoozing = await start_one(store)
        await settle_one(store, snoozing, Snoozed(delay=60))
        queued = await enqueue_one(store)
        held = await enqueue_one(store, hold=True)

        answers = await store.delete([running.id, snoozing.id, queued.id, held.id])

        assert [(answer.status, answer.state) for answer in answers] == [
            (Status.CONFLICT, State.RUNNING),
            (Status.CONFLICT, State.RETRYING),
            (Status.CONFLICT, State.QUEUED),
            (Status.CONFLICT, State.CREATED),
        ]
        assert all(await kept(store, [running.id, snoozing.id, queued.id, held.id]))

    async def test_each_deletion_has_its_own_result(self, store: Store) -> None:
        done = await finished(store)
        queued = await enqueue_one(store)

        answers = await store.delete([uuid7(), done.id, queued.id, done.id])

        assert [answer.status for answer in answers] == [
            Status.MISSING,
            Status.APPLIED,
            Status.CONFLICT,
            Status.MISSING,
        ]
        assert await store.delete([]) == []

    async def test_another_owners_job_cannot_be_deleted(self, store: Store) -> None:
        job = await finished(store, owner="ana")

        [refused] = await store.delete([job.id], owner="ben")
        assert refused.status is Status.MISSING
        assert await kept(store, [job.id]) == [True]

        [own] = await store.delete([job.id], owner="ana")
        assert own.status is Status.APPLIED
        assert await kept(store, [job.id]) == [False]
