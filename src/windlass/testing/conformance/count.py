"""How much there is of what, without looking at every job; and what each minute has settled."""

from __future__ import annotations

from dataclasses import replace

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions.outcome import Aborted, Failed, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import COUNT_CAP, QueueStats, Rollup, Store
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.job_histories import BROKEN, finished
from windlass.testing.conformance.settle import ending
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    make_failure,
    make_job,
    settle_one,
    start_one,
    sweep_all,
)

MINUTE = 60 * SECOND


def depth(stats: QueueStats) -> dict[State, int]:
    """A state that nobody is in may be named or not."""
    return {state: count for state, count in stats.counts.items() if count}


async def settled(
    store: Store, since: Instant = START, until: Instant | None = None
) -> list[Rollup]:
    until = until if until is not None else START + 1000 * MINUTE
    found = await store.rollups(since, until)
    return sorted(found, key=lambda each: (each.minute, each.queue, each.task, each.outcome))


class TestCounting:
    # -- depth

    async def test_an_empty_store_has_no_queues(self, store: Store) -> None:
        assert await store.stats() == {}

    async def test_depth_is_told_by_queue_and_state(self, store: Store) -> None:
        await start_one(store, queue="film")
        snoozing = await start_one(store, queue="film")
        await settle_one(store, snoozing, Snoozed(delay=60))
        for values in ({"hold": True}, {"delay": 60.0}, {}, {}, {}):
            await enqueue_one(store, queue="film", **values)
        await enqueue_one(store, queue="mail")

        stats = await store.stats()

        assert sorted(stats) == ["film", "mail"]
        assert depth(stats["film"]) == {
            State.CREATED: 2,
            State.QUEUED: 3,
            State.RUNNING: 1,
            State.RETRYING: 1,
        }
        assert depth(stats["mail"]) == {State.QUEUED: 1}
        assert stats["film"].capped == frozenset()

    async def test_finished_jobs_are_no_depth(self, store: Store) -> None:
        await finished(store, Succeeded())
        await finished(store, BROKEN)
        await finished(store, Aborted())

        stats = await store.stats()

        assert all(not depth(each) for each in stats.values())

    async def test_depth_follows_a_job_through_its_life(
        self, store: Store, clock: VirtualClock
    ) -> None:
        async def now() -> dict[State, int]:
            stats = await store.stats()
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
        await store.cancel([CancelRequest(job_id=job.id)])
        assert await now() == {}

    async def test_the_oldest_of_the_line_is_told(self, store: Store, clock: VirtualClock) -> None:
        first = clock.now()
        await enqueue_one(store)
        clock.advance(10)
        await enqueue_one(store, priority=9)
        await enqueue_one(store, queue="held", hold=True)

        stats = await store.stats()
        assert stats["default"].oldest_queued_at == first
        assert stats["held"].oldest_queued_at is None

        await claim_all(store)
        assert (await store.stats())["default"].oldest_queued_at is None

    async def test_a_job_given_back_is_as_old_as_its_new_place_in_line(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        released = clock.advance(10)
        await settle_one(store, job, Released())

        assert (await store.stats())["default"].oldest_queued_at == released

    async def test_a_paused_queue_is_shown_even_when_it_is_empty(self, store: Store) -> None:
        await enqueue_one(store, queue="film")
        await store.pause(["film", "empty"], paused=True)

        stats = await store.stats()
        assert (stats["film"].paused, depth(stats["film"])) == (True, {State.QUEUED: 1})
        assert (stats["empty"].paused, depth(stats["empty"])) == (True, {})

        await store.pause(["film", "empty"], paused=False)
        stats = await store.stats()
        assert not stats["film"].paused
        assert "empty" not in stats

    async def test_counts_stop_at_the_cap_and_say_so(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(COUNT_CAP + 1)])
        await store.enqueue([make_job(queue="small"), make_job(queue="small", hold=True)])

        stats = await store.stats()

        assert stats["default"].counts[State.QUEUED] == COUNT_CAP
        assert stats["default"].capped == {State.QUEUED}
        assert depth(stats["small"]) == {State.QUEUED: 1, State.CREATED: 1}
        assert stats["small"].capped == frozenset()

    async def test_below_the_cap_every_count_is_exact_whatever_other_queues_hold(
        self, store: Store
    ) -> None:
        share = COUNT_CAP * 6 // 10
        await store.enqueue([make_job(queue="a", delay=60) for _ in range(share)])
        await store.enqueue([make_job(queue="b", delay=60) for _ in range(share)])

        stats = await store.stats()

        assert depth(stats["a"]) == depth(stats["b"]) == {State.CREATED: share}
        assert stats["a"].capped == stats["b"].capped == frozenset()

    # -- rollups

    async def test_nothing_settled_is_nothing_to_tell(self, store: Store) -> None:
        await start_one(store)

        assert await settled(store) == []

    async def test_each_minute_tells_how_many_how_long_they_waited_and_ran(
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

    async def test_minutes_queues_tasks_and_outcomes_are_told_apart(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await finished(store, Succeeded(), queue="film", task="render")
        await finished(store, Succeeded(), queue="film", task="cut")
        await finished(store, Succeeded(), queue="mail", task="render")
        await finished(store, BROKEN, queue="film", task="render")
        await finished(store, Aborted(), queue="film", task="render")
        clock.advance(60)
        await finished(store, Succeeded(), queue="film", task="render")

        told = [
            ((each.minute - START) // MINUTE, each.queue, each.task, each.outcome, each.count)
            for each in await settled(store)
        ]

        assert told == [
            (0, "film", "cut", State.SUCCEEDED, 1),
            (0, "film", "render", State.CANCELED, 1),
            (0, "film", "render", State.FAILED, 1),
            (0, "film", "render", State.SUCCEEDED, 1),
            (0, "mail", "render", State.SUCCEEDED, 1),
            (1, "film", "render", State.SUCCEEDED, 1),
        ]

    async def test_every_attempt_counts_with_its_own_waiting_and_running(
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

        told = [(each.outcome, each.count, each.wait, each.run) for each in await settled(store)]

        assert told == [
            (State.RETRYING, 1, 1 * SECOND, 2 * SECOND),
            (State.SUCCEEDED, 1, 4 * SECOND, 8 * SECOND),
        ]

    async def test_a_job_canceled_in_line_waited_but_never_ran(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await enqueue_one(store)
        clock.advance(7)
        await store.cancel([CancelRequest(job_id=job.id)])

        [told] = await settled(store)

        assert (told.outcome, told.count) == (State.CANCELED, 1)
        assert (told.wait, told.run) == (7 * SECOND, 0)

    async def test_a_job_canceled_out_of_line_waited_since_it_was_put_in_or_last_queued(
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
        await store.cancel([CancelRequest(job_id=job.id) for job in (held, late, again)])

        ended = [each for each in await settled(store) if each.outcome is State.CANCELED]

        told = [(each.queue, each.wait // SECOND, each.run) for each in ended]
        assert told == [("again", 2, 0), ("held", 67, 0), ("late", 7, 0)]

    async def test_a_dead_workers_attempt_counts_when_it_is_rescued(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await start_one(store)
        clock.advance(31)
        await sweep_all(store)

        [told] = await settled(store)

        assert (told.outcome, told.count, told.run) == (State.RETRYING, 1, 31 * SECOND)

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
        told = [(each.outcome, each.count) for each in await settled(store)]
        assert told == [(State.RETRYING, 1), (State.SUCCEEDED, 1)]

    async def test_successes_settled_with_stale_and_repeated_ones_count_once_each(
        self, store: Store, clock: VirtualClock
    ) -> None:
        first, *rows = [await start_one(store) for _ in range(5)]
        clock.advance(1.0)
        await settle_one(store, first, Succeeded(result=b"1"))
        wishes = [ending(row, Succeeded(result=b"1")) for row in (first, *rows)]
        wishes[2] = replace(wishes[2], token=uuid7())
        answers = await store.apply(wishes)
        assert [answer.status for answer in answers] == [
            Status.APPLIED, Status.APPLIED, Status.STALE, Status.APPLIED, Status.APPLIED
        ]  # fmt: skip
        [told] = await settled(store)
        assert (told.count, told.run) == (4, 4 * SECOND)

    async def test_a_span_has_its_first_minute_and_not_its_last(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for _ in range(4):
            await finished(store, Succeeded())
            clock.advance(60)

        told = await settled(store, START + MINUTE, START + 3 * MINUTE)

        assert [each.minute for each in told] == [START + MINUTE, START + 2 * MINUTE]

    async def test_what_was_counted_stays_when_its_job_is_deleted(self, store: Store) -> None:
        job = await finished(store, Succeeded())
        before = await settled(store)

        await store.delete([job.id])

        assert await settled(store) == before
        assert len(before) == 1
