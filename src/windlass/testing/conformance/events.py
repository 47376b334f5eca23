"""Each job has one log: numbered 1..n without gaps, unchanging, and enough to know all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from windlass.core.event import Event, EventType, Record, fold, snapshot
from windlass.core.ids import uuid7
from windlass.core.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    submit,
)
from windlass.core.state import State
from windlass.core.transition import CancelRequest
from windlass.store import DAY, Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.factories import (
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

PATIENCE = 20.0  # seconds before a test gives up waiting; a sound store needs a blink
ENDS: dict[str, Outcome] = {
    "success": Succeeded(result=b'"done"'),
    "failure": Failed(failure=make_failure("Broken", terminal=True, step="render", body=b"why")),
    "its own cancel": Aborted(reason="nothing to do"),
}


async def rich_life(store: Store, clock: VirtualClock, end: Outcome) -> AsyncIterator[UUID]:
    """One job through nearly everything that can happen to one; yields after each step."""
    job = await enqueue_one(store, hold=True, delay=5, headers={"correlation-id": "c-7"})
    yield job.id
    await store.apply([submit(job.id)])
    yield job.id
    clock.advance(5)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store)
    yield job.id
    clock.advance(1)
    await say(store, attempt, progress(1, 10, stage="script", phase="plan"), note(2, "hello"))
    yield job.id
    await say(store, attempt, step_done(3, "script", b"text"), progress(4, 25, stage="voice"))
    yield job.id
    clock.advance(1)
    error = make_failure("Flaky", step="voice", body=b"try again")
    last = [note(4, "a repeat"), note(5, "so be it"), progress(6, 30)]
    await settle_one(store, attempt, Failed(failure=error, delay=60), records=last)
    yield job.id
    clock.advance(60)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store, worker="worker-2")
    yield job.id
    await say(store, attempt, progress(1, 5, stage="voice"))
    yield job.id
    clock.advance(31)
    await sweep_all(store)  # its worker died
    yield job.id

    attempt = await claim_one(store, worker="worker-3")
    yield job.id
    await settle_one(store, attempt, Released())
    yield job.id
    attempt = await claim_one(store)
    await settle_one(store, attempt, Snoozed(delay=10), records=[note(1, "later")])
    yield job.id
    clock.advance(10)
    await sweep_all(store)
    attempt = await claim_one(store)
    await settle_one(store, attempt, Suspended(timeout=1))
    yield job.id
    clock.advance(1)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store)
    clock.advance(2)
    await say(store, attempt, progress(1, 80, stage="render", phase="render"))
    yield job.id
    await settle_one(store, attempt, end, records=[note(2, "goodbye")])
    yield job.id


async def lived(store: Store, clock: VirtualClock, end: Outcome) -> UUID:
    """The id of a job that has such a life behind it."""
    ids = [job_id async for job_id in rich_life(store, clock, end)]
    return ids[-1]


async def chatter(store: Store, attempts: int, notes: int) -> UUID:
    """A job with many attempts, each of which said much."""
    job = await enqueue_one(store)
    for _ in range(attempts):
        attempt = await claim_one(store)
        await say(store, attempt, *(note(n, f"line {n}") for n in range(1, notes + 1)))
        await settle_one(store, attempt, Released())
    await settle_one(store, await claim_one(store), Succeeded())
    return job.id


async def follow(store: Store, job_id: UUID, after: int = 0) -> list[Event]:
    """All that `tail` tells, until it ends by itself."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in store.tail(job_id, after)]


async def heard(tail: AsyncIterator[Event], count: int) -> list[Event]:
    """The next events of a tail."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(tail) for _ in range(count)]


class TestEvents:
    # -- numbers

    async def test_a_silent_job_has_four_events(self, store: Store, clock: VirtualClock) -> None:
        at = clock.now()
        job = await start_one(store, headers={"correlation-id": "c-1"})
        await settle_one(store, job, Succeeded(result=b"42"))

        log = await read_events(store, job.id)

        assert [(event.seq, event.type.value, event.data["status"]) for event in log] == [
            (1, "job-status", "created"),
            (2, "job-status", "queued"),
            (3, "job-status", "running"),
            (4, "job-completed", "succeeded"),
        ]
        assert {event.at for event in log} == {at}
        assert {event.job_id for event in log} == {job.id}
        assert {event.correlation_id for event in log} == {"c-1"}
        assert log[-1].body == b"42"

    @pytest.mark.parametrize("end", ENDS)
    async def test_events_are_numbered_from_1_without_gaps(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        async for job_id in rich_life(store, clock, ENDS[end]):
            row = await get_one(store, job_id)
            log = await read_events(store, job_id)
            assert [event.seq for event in log] == list(range(1, row.seq + 1))

    async def test_their_instants_never_run_backwards(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await lived(store, clock, Succeeded())

        instants = [event.at for event in await read_events(store, job_id)]

        assert instants == sorted(instants)

    async def test_only_the_last_event_is_final(self, store: Store, clock: VirtualClock) -> None:
        job_id = await lived(store, clock, Succeeded())

        [*others, last] = await read_events(store, job_id)

        assert last.final
        assert not any(event.final for event in others)

    # -- meaning

    @pytest.mark.parametrize("end", ENDS)
    async def test_at_every_step_the_events_add_up_to_where_the_job_stands(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        async for job_id in rich_life(store, clock, ENDS[end]):
            assert fold(await read_events(store, job_id)) == snapshot(await get_one(store, job_id))

    async def test_they_add_up_when_an_operator_cancels(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, Failed(failure=make_failure(), delay=0))
        job = await claim_one(store)
        clock.advance(1)
        await store.cancel([CancelRequest(job_id=job.id, by="ana", reason="wrong file")])
        assert fold(await read_events(store, job.id)) == snapshot(await get_one(store, job.id))

        clock.advance(1)
        await settle_one(store, job, Succeeded(result=b"too late"))

        log = await read_events(store, job.id)
        assert fold(log) == snapshot(await get_one(store, job.id))
        asked, final = log[-2:]
        assert (asked.type, asked.data["by"]) == (EventType.CANCEL_REQUESTED, "ana")
        assert asked.data["reason"] == "wrong file"
        assert (final.type, final.data["message"]) == (EventType.JOB_CANCELLED, "wrong file")
        assert final.body != b"too late"

    async def test_they_add_up_when_a_waiting_job_is_canceled_or_expires(
        self, store: Store, clock: VirtualClock
    ) -> None:
        held = await enqueue_one(store, hold=True)
        late = await enqueue_one(store, expires_in=5)
        clock.advance(6)
        await store.cancel([CancelRequest(job_id=held.id)])
        await sweep_all(store)

        for job in (held, late):
            assert fold(await read_events(store, job.id)) == snapshot(await get_one(store, job.id))

    async def test_they_add_up_when_a_job_has_killed_too_many_workers(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await enqueue_one(store)
        while not (await get_one(store, job.id)).final:
            await claim_one(store)
            clock.advance(31)
            await sweep_all(store)  # takes the lease back
            clock.advance(31)
            await sweep_all(store)  # and, when the delay is over, queues it

        log = await read_events(store, job.id)
        assert fold(log) == snapshot(await get_one(store, job.id))
        assert log[-1].data["crashCount"] == 3

    async def test_every_attempt_is_told(self, store: Store, clock: VirtualClock) -> None:
        job_id = await lived(store, clock, Succeeded())

        attempts = await store.attempts(job_id)

        assert attempts is not None
        assert [each.number for each in attempts] == [1, 2, 3, 4, 5, 6]
        assert [each.fence for each in attempts] == [1, 2, 3, 4, 5, 6]
        ended = [each.outcome.value if each.outcome else None for each in attempts]
        assert ended == ["retry", "crash", "release", "snooze", "suspend", "succeed"]
        assert attempts[0].error is not None
        assert attempts[0].error.code == "Flaky"
        assert (attempts[0].worker, attempts[1].worker) == ("worker-1", "worker-2")
        assert [each.percent for each in attempts] == [30, 30, 30, 30, 30, 100]
        assert await store.attempts(uuid7()) is None

    # -- unchanging

    @pytest.mark.parametrize("end", ENDS)
    async def test_an_event_once_read_never_changes(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        known: list[Event] = []
        async for job_id in rich_life(store, clock, ENDS[end]):
            log = await read_events(store, job_id)
            assert log[: len(known)] == known
            known = log

    async def test_a_cancel_request_changes_no_event_that_was_read(self, store: Store) -> None:
        job = await start_one(store)
        await say(store, job, progress(1, 10, stage="voice"))
        known = await read_events(store, job.id)

        await store.cancel([CancelRequest(job_id=job.id, by="ana")])
        assert (await read_events(store, job.id))[: len(known)] == known
        known = await read_events(store, job.id)

        await settle_one(store, job, Aborted(reason="as you wish"))
        assert (await read_events(store, job.id))[: len(known)] == known

    async def test_a_retry_of_the_finished_job_changes_none_of_its_events(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, Failed(failure=make_failure(terminal=True)))
        known = await read_events(store, job.id)

        await enqueue_one(store, retry_of=job.id)

        assert await read_events(store, job.id) == known

    # -- pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
    async def test_pages_of_any_size_tell_the_same_story(self, store: Store, limit: int) -> None:
        job_id = await chatter(store, attempts=5, notes=12)
        whole = await read_events(store, job_id)
        assert len(whole) == 1 + 5 * (2 + 12 + 1) + 3

        told: list[Event] = []
        while True:
            page = await store.events(job_id, len(told), limit)
            assert page is not None
            assert 0 < len(page.events) <= limit
            told += page.events
            if page.ended:
                break

        assert told == whole

    async def test_a_page_may_begin_after_any_event(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await lived(store, clock, Succeeded())
        whole = await read_events(store, job_id)

        for after in range(len(whole) + 1):
            assert await read_events(store, job_id, after) == whole[after:]
            page = await store.events(job_id, after, 2)
            assert page is not None
            assert list(page.events) == whole[after : after + 2]
            assert page.ended == (after + 2 >= len(whole))

    async def test_a_log_of_thousands_is_read_to_its_end(self, store: Store) -> None:
        job_id = await chatter(store, attempts=2, notes=1250)
        row = await get_one(store, job_id)

        log = await read_events(store, job_id)

        assert [event.seq for event in log] == list(range(1, row.seq + 1))
        assert await follow(store, job_id) == log

    async def test_a_log_has_not_ended_before_its_job_has(self, store: Store) -> None:
        job = await start_one(store)

        page = await store.events(job.id, after=job.seq)

        assert page is not None
        assert (list(page.events), page.ended) == ([], False)

    async def test_beyond_the_final_event_there_is_nothing(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())

        page = await store.events(job.id, after=4)

        assert page is not None
        assert (list(page.events), page.ended) == ([], True)

    async def test_an_unknown_job_has_no_log(self, store: Store) -> None:
        assert await store.events(uuid7()) is None

    # -- tail

    @pytest.mark.parametrize("end", ENDS)
    async def test_the_tail_of_a_finished_job_is_its_log_and_ends(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        job_id = await lived(store, clock, ENDS[end])

        assert await follow(store, job_id) == await read_events(store, job_id)

    async def test_a_tail_begins_after_any_event(self, store: Store, clock: VirtualClock) -> None:
        job_id = await lived(store, clock, Succeeded())
        whole = await read_events(store, job_id)

        for after in range(len(whole) + 1):
            assert await follow(store, job_id, after) == whole[after:]

    async def test_a_tail_replays_then_follows_live_and_ends_with_the_job(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        tail = store.tail(job.id)
        replayed = await heard(tail, 3)

        await say(store, job, note(1, "live"))
        live = await heard(tail, 1)
        last = asyncio.ensure_future(heard(tail, 2))
        await say(store, job, note(2, "live, and waited for"))
        await settle_one(store, job, Succeeded())

        assert [*replayed, *live, *await last] == await read_events(store, job.id)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async def test_a_tail_from_the_present_tells_only_what_comes(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id, after=job.seq))

        await say(store, job, note(1, "new"))
        await settle_one(store, job, Succeeded())

        assert await following == (await read_events(store, job.id))[job.seq :]

    async def test_a_tail_follows_through_every_attempt(
        self, store: Store, clock: VirtualClock
    ) -> None:
        life = rich_life(store, clock, Succeeded())
        job_id = await anext(life)
        following = asyncio.ensure_future(follow(store, job_id))

        async for _ in life:
            await asyncio.sleep(0)

        assert await following == await read_events(store, job_id)

    async def test_several_tails_of_one_job_tell_the_same(self, store: Store) -> None:
        job = await start_one(store)
        tails = [asyncio.ensure_future(follow(store, job.id, after)) for after in range(5)]

        await say(store, job, note(1, "to everyone"))
        await settle_one(store, job, Succeeded())

        whole = await read_events(store, job.id)
        assert await asyncio.gather(*tails) == [whole[after:] for after in range(5)]

    async def test_a_tail_hears_what_another_opening_of_the_store_writes(
        self, store: Store, open_store: OpenStore
    ) -> None:
        job = await start_one(store)
        async with await open_store() as other:
            following = asyncio.ensure_future(follow(other, job.id))
            await say(store, job, note(1, "over here"))
            await settle_one(store, job, Succeeded())

            assert await following == await read_events(store, job.id)

    async def test_a_tail_misses_nothing_while_the_log_is_being_written(self, store: Store) -> None:
        job = await start_one(store)
        following = asyncio.ensure_future(follow(store, job.id))

        for n in range(1, 101):
            await say(store, job, note(n, str(n)))
        await settle_one(store, job, Succeeded())

        assert [event.seq for event in await following] == list(range(1, 3 + 100 + 2))

    async def test_the_tail_of_an_unknown_job_ends_at_once(self, store: Store) -> None:
        assert await follow(store, uuid7()) == []

    async def test_a_tail_ends_when_its_job_is_deleted(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())
        tail = store.tail(job.id)
        await heard(tail, 4)

        await store.delete([job.id])

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    # -- a log that was pruned

    async def test_whoever_is_behind_a_pruned_log_is_brought_up_to_date(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await lived(store, clock, ENDS["failure"])
        before = await read_events(store, job_id)
        clock.advance(2 * DAY)
        pruned = await store.prune(Retention(log=DAY), limit=10)
        assert (pruned.jobs, pruned.logs) == (0, 1)

        row = await get_one(store, job_id)
        log = await read_events(store, job_id)

        assert log[0].type is EventType.RESYNC
        assert log[0].data["state"] == State.FAILED
        assert log[-1] == before[-1]
        assert fold(log) == snapshot(row)
        assert await follow(store, job_id) == log
        assert await read_events(store, job_id, limit=1) == log

    @pytest.mark.parametrize("end", ENDS)
    async def test_after_the_resync_the_rest_follows_without_a_gap(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        job_id = await lived(store, clock, ENDS[end])
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)
        row = await get_one(store, job_id)

        for after in range(row.seq + 1):
            log = await read_events(store, job_id, after)
            numbers = [event.seq for event in log]
            assert numbers == list(range(row.seq - len(log) + 1, row.seq + 1))
            assert not log or log[0].seq == after + 1 or log[0].type is EventType.RESYNC

    async def test_whoever_is_up_to_date_does_not_notice(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await lived(store, clock, Succeeded())
        row = await get_one(store, job_id)
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)

        page = await store.events(job_id, after=row.seq)

        assert page is not None
        assert (list(page.events), page.ended) == ([], True)
        assert await follow(store, job_id, after=row.seq) == []

    async def test_words_of_every_alphabet_come_back(self, store: Store) -> None:
        job = await start_one(store)
        stage = "日本語 \N{GRINNING FACE} \"quoted\" \n'line' \\"

        await say(store, job, Record(n=1, type=EventType.STEP_PROGRESS, percent=1, stage=stage))

        [event] = await read_events(store, job.id, after=job.seq)
        assert event.data["stage"] == stage
        assert (await get_one(store, job.id)).stage == stage
