"""Queue statistics: depth by state, and rollups of settled attempts per minute."""

from __future__ import annotations

from dataclasses import replace

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.outcome import Aborted, Failed, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import COUNT_CAP, QueueStats, Rollup, Store
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.attempts.settle import settle_transition
from windlass.testing.conformance.history_helpers import BROKEN, finished
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    make_failure,
    make_job,
    set_paused,
    settle_one,
    start_one,
    sweep_all,
)

MINUTE = 60 * SECOND


def depth(stats: QueueStats) -> dict[State, int]:
    """Return the counts without zeros, which a store may include or omit."""
    return {state: count for state, count in stats.counts.items() if count}


async def settled(
    store: Store, since: Instant = START, until: Instant | None = None
) -> list[Rollup]:
    until = until if until is not None else START + 1000 * MINUTE
    found = await store.insights.rollups(since, until)
    return sorted(found, key=lambda each: (each.minute, each.queue, each.task, each.outcome))


class TestQueueStats:
    # -- depth

    async def test_an_empty_store_has_no_queues(self, store: Store) -> None:
        assert await store.insights.stats() == {}

    async def test_depth_is_counted_by_queue_and_state(self, store: Store) -> None:
        await start_one(store, queue="film")
        snoozing = await start_one(store, queue="film")
        await settle_one(store, snoozing, Snoozed(delay=60))
        for values in ({"hold": True}, {"delay": 60.0}, {}, {}, {}):
            await enqueue_one(store, queue="film", **values)
        await enqueue_one(store, queue="mail")

        stats = await store.insights.stats()

        assert sorted(stats) == ["film", "mail"]
        assert depth(stats["film"]) == {
            State.CREATED: 2,
            State.QUEUED: 3,
            State.RUNNING: 1,
            State.RETRYING: 1,
        }
        assert depth(stats["mail"]) == {State.QUEUED: 1}
        assert stats["film"].capped == frozenset()

    async def test_depth_excludes_finished_jobs(self, store: Store) -> None:
        await finished(store, Succeeded())
        await finished(store, BROKEN)
        await finished(store, Aborted())

        stats = await store.insights.stats()

        assert all(not depth(each) for each in stats.values())

    async def test_depth_follows_every_state_of_a_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        async def now() -> dict[State, int]:
            stats = await store.insights.stats()
            return depth(stats["default"]) if stats else {}

        await enqueue_one(store, delay=5)
        assert await now() == {State.CREATED: 1}
        clock.advance(5)
        await sweep_all(store)
        assert await now() == {State.QUEUED: 1}
        job = await claim_one(store)
        assert await now() == {State.RUNNING: 1}
        await settle_one(store, job, Failed(failure=make_failure(), delay=5))
        assert await now() == {State.RETRYING: 1}
        await store.apply([CancelRequest(job_id=job.id)])
        assert await now() == {}

    async def test_stats_include_the_oldest_queued_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        first = clock.now()
        await enqueue_one(store)
        clock.advance(10)
        await enqueue_one(store, priority=9)
        await enqueue_one(store, queue="held", hold=True)

        stats = await store.insights.stats()
        assert stats["default"].oldest_queued_at == first
        assert stats["held"].oldest_queued_at is None

        await claim_all(store)
        assert (await store.insights.stats())["default"].oldest_queued_at is None

    async def test_the_queue_age_of_a_released_job_starts_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        released = clock.advance(10)
        await settle_one(store, job, Released())

        assert (await store.insights.stats())["default"].oldest_queued_at == released

    async def test_an_empty_paused_queue_is_in_the_stats(self, store: Store) -> None:
        await enqueue_one(store, queue="film")
        await set_paused(store, ["film", "empty"], paused=True)

        stats = await store.insights.stats()
        assert (stats["film"].paused, depth(stats["film"])) == (True, {State.QUEUED: 1})
        assert (stats["empty"].paused, depth(stats["empty"])) == (True, {})

        await set_paused(store, ["film", "empty"], paused=False)
        stats = await store.insights.stats()
        assert not stats["film"].paused
        assert "empty" not in stats

    async def test_counts_stop_at_the_cap_and_are_marked(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(COUNT_CAP + 1)])
        await store.enqueue([make_job(queue="small"), make_job(queue="small", hold=True)])

        stats = await store.insights.stats()

        assert stats["default"].counts[State.QUEUED] == COUNT_CAP
        assert stats["default"].capped == {State.QUEUED}
        assert depth(stats["small"]) == {State.QUEUED: 1, State.CREATED: 1}
        assert stats["small"].capped == frozenset()

    async def test_counts_below_the_cap_are_exact_for_every_queue(self, store: Store) -> None:
        share = COUNT_CAP * 6 // 10
        await store.enqueue([make_job(queue="a", delay=60) for _ in range(share)])
        await store.enqueue([make_job(queue="b", delay=60) for _ in range(share)])

        stats = await store.insights.stats()

        assert depth(stats["a"]) == depth(stats["b"]) == {State.CREATED: share}
        assert stats["a"].capped == stats["b"].capped == frozenset()

    # -- rollups

    async def test_without_settles_there_are_no_rollups(self, store: Store) -> None:
        await start_one(store)

        assert await settled(store) == []

    async def test_a_rollup_has_count_wait_time_and_run_time_per_minute(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.enqueue([make_job(task="render", queue="film") for _ in range(2)])
        clock.advance(3)
        first, second = await claim_all(store, "film")
        clock.advance(5)
        await settle_one(store, first, Succeeded())
        clock.advance(2)
        await settle_one(store, second, Succeeded())

        assert await settled(store) == [
            Rollup(
                minute=START,
                queue="film",
                task="render",
                outcome=State.SUCCEEDED,
                count=2,
                wait=(3 + 3) * SECOND,
                run=(5 + 7) * SECOND,
            )
        ]

    async def test_rollups_are_separate_by_minute_queue_task_and_outcome(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await finished(store, Succeeded(), queue="film", task="render")
        await finished(store, Succeeded(), queue="film", task="cut")
        await finished(store, Succeeded(), queue="mail", task="render")
        await finished(store, BROKEN, queue="film", task="render")
        await finished(store, Aborted(), queue="film", task="render")
        clock.advance(60)
        await finished(store, Succeeded(), queue="film", task="render")

        rollups = [
            ((each.minute - START) // MINUTE, each.queue, each.task, each.outcome, each.count)
            for each in await settled(store)
        ]

        assert rollups == [
            (0, "film", "cut", State.SUCCEEDED, 1),
            (0, "film", "render", State.CANCELED, 1),
            (0, "film", "render", State.FAILED, 1),
            (0, "film", "render", State.SUCCEEDED, 1),
            (0, "mail", "render", State.SUCCEEDED, 1),
            (1, "film", "render", State.SUCCEEDED, 1),
        ]

    async def test_every_attempt_counts_with_its_own_wait_and_run_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await enqueue_one(store)
        clock.advance(1)
        job = await claim_one(store)
        clock.advance(2)
        await settle_one(store, job, Failed(failure=make_failure(), delay=10))
        clock.advance(10)
        await sweep_all(store)
        clock.advance(4)
        job = await claim_one(store)
        clock.advance(8)
        await settle_one(store, job, Succeeded())

        rollups = [(each.outcome, each.count, each.wait, each.run) for each in await settled(store)]

        assert rollups == [
            (State.RETRYING, 1, 1 * SECOND, 2 * SECOND),
            (State.SUCCEEDED, 1, 4 * SECOND, 8 * SECOND),
        ]

    async def test_a_canceled_queued_job_has_wait_time_but_no_run_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await enqueue_one(store)
        clock.advance(7)
        await store.apply([CancelRequest(job_id=job.id)])

        [rollups] = await settled(store)

        assert (rollups.outcome, rollups.count) == (State.CANCELED, 1)
        assert (rollups.wait, rollups.run) == (7 * SECOND, 0)

    async def test_the_wait_time_of_a_canceled_waiting_job_starts_at_its_enqueue_or_last_queueing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        held = await enqueue_one(store, queue="held", hold=True)
        late = await enqueue_one(store, queue="late", delay=60.0)
        clock.advance(60)
        await sweep_all(store)
        clock.advance(5)
        again = await start_one(store, queue="again")
        await settle_one(store, again, Failed(failure=make_failure(), delay=10))
        clock.advance(2)
        await store.apply([CancelRequest(job_id=job.id) for job in (held, late, again)])

        ended = [each for each in await settled(store) if each.outcome is State.CANCELED]

        rollups = [(each.queue, each.wait // SECOND, each.run) for each in ended]
        assert rollups == [("again", 2, 0), ("held", 67, 0), ("late", 7, 0)]

    async def test_an_attempt_of_a_dead_worker_counts_at_its_rescue(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await start_one(store)
        clock.advance(31)
        await sweep_all(store)

        [rollups] = await settled(store)

        assert (rollups.outcome, rollups.count, rollups.run) == (State.RETRYING, 1, 31 * SECOND)

    async def test_a_repeated_settle_counts_once_and_a_stale_one_not_at_all(
        self, store: Store
    ) -> None:
        stale = await start_one(store)
        await settle_one(store, stale, Released())
        job = await claim_one(store)
        for _ in range(3):
            await settle_one(store, job, Succeeded())

        answer = await settle_one(store, stale, BROKEN)

        assert answer.status is Status.STALE
        rollups = [(each.outcome, each.count) for each in await settled(store)]
        assert rollups == [(State.RETRYING, 1), (State.SUCCEEDED, 1)]

    async def test_successes_settled_with_stale_and_repeated_ones_count_once_each(
        self, store: Store, clock: VirtualClock
    ) -> None:
        first, *rows = [await start_one(store) for _ in range(5)]
        clock.advance(1.0)
        await settle_one(store, first, Succeeded(result=b"1"))
        transitions = [settle_transition(row, Succeeded(result=b"1")) for row in (first, *rows)]
        transitions[2] = replace(transitions[2], token=uuid7())
        answers = await store.apply(transitions)
        assert [answer.status for answer in answers] == [
            Status.APPLIED, Status.APPLIED, Status.STALE, Status.APPLIED, Status.APPLIED
        ]  # fmt: skip
        [rollups] = await settled(store)
        assert (rollups.count, rollups.run) == (4, 4 * SECOND)

    async def test_a_range_includes_its_first_minute_and_excludes_its_last(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for _ in range(4):
            await finished(store, Succeeded())
            clock.advance(60)

        rollups = await settled(store, START + MINUTE, START + 3 * MINUTE)

        assert [each.minute for each in rollups] == [START + MINUTE, START + 2 * MINUTE]

    async def test_rollups_stay_when_their_job_is_deleted(self, store: Store) -> None:
        job = await finished(store, Succeeded())
        before = await settled(store)

        await store.delete([job.id])

        assert await settled(store) == before
        assert len(before) == 1
