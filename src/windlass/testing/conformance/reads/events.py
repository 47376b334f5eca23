"""Events: each job has one immutable log, numbered 1..n without gaps."""

from __future__ import annotations

import pytest

from windlass.core.decisions.outcome import Aborted, Failed, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.event import Event, EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.event_log import expected_fold, fold
from windlass.core.job.state import State
from windlass.store import DAY, Retention, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import (
    ENDS,
    full_history,
    run_full_history,
    run_long_log,
)
from windlass.testing.factories import (
    append_records,
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    progress_record,
    read_events,
    settle_one,
    start_one,
    sweep_all,
)


class TestEvents:
    # -- numbers

    async def test_a_job_without_records_has_four_events(
        self, store: Store, clock: VirtualClock
    ) -> None:
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
        async for job_id in full_history(store, clock, ENDS[end]):
            row = await get_one(store, job_id)
            log = await read_events(store, job_id)
            assert [event.seq for event in log] == list(range(1, row.seq + 1))

    async def test_event_instants_never_decrease(self, store: Store, clock: VirtualClock) -> None:
        job_id = await run_full_history(store, clock, Succeeded())

        instants = [event.at for event in await read_events(store, job_id)]

        assert instants == sorted(instants)

    async def test_only_the_last_event_is_final(self, store: Store, clock: VirtualClock) -> None:
        job_id = await run_full_history(store, clock, Succeeded())

        [*others, last] = await read_events(store, job_id)

        assert last.final
        assert not any(event.final for event in others)

    # -- content

    @pytest.mark.parametrize("end", ENDS)
    async def test_the_events_always_add_up_to_the_row(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        async for job_id in full_history(store, clock, ENDS[end]):
            assert fold(await read_events(store, job_id)) == expected_fold(
                await get_one(store, job_id)
            )

    async def test_the_events_add_up_after_a_cancel_of_a_running_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, Failed(failure=make_failure(), delay=0))
        job = await claim_one(store)
        clock.advance(1)
        await store.apply([CancelRequest(job_id=job.id, by="ana", reason="wrong file")])
        assert fold(await read_events(store, job.id)) == expected_fold(await get_one(store, job.id))

        clock.advance(1)
        await settle_one(store, job, Succeeded(result=b"too late"))

        log = await read_events(store, job.id)
        assert fold(log) == expected_fold(await get_one(store, job.id))
        requested, final = log[-2:]
        assert (requested.type, requested.data["by"]) == (EventType.CANCEL_REQUESTED, "ana")
        assert requested.data["reason"] == "wrong file"
        assert (final.type, final.data["message"]) == (EventType.JOB_CANCELLED, "wrong file")
        assert final.body != b"too late"

    async def test_the_events_add_up_after_a_waiting_job_is_canceled_or_expires(
        self, store: Store, clock: VirtualClock
    ) -> None:
        held = await enqueue_one(store, hold=True)
        late = await enqueue_one(store, expires_in=5)
        clock.advance(6)
        await store.apply([CancelRequest(job_id=held.id)])
        await sweep_all(store)

        for job in (held, late):
            assert fold(await read_events(store, job.id)) == expected_fold(
                await get_one(store, job.id)
            )

    async def test_the_events_add_up_after_a_job_reaches_its_crash_cap(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await enqueue_one(store)
        while not (await get_one(store, job.id)).final:
            await claim_one(store)
            clock.advance(31)
            await sweep_all(store)  # rescues the job
            clock.advance(31)
            await sweep_all(store)  # promotes it after its delay

        log = await read_events(store, job.id)
        assert fold(log) == expected_fold(await get_one(store, job.id))
        assert log[-1].data["crashCount"] == 3

    async def test_every_attempt_has_a_record(self, store: Store, clock: VirtualClock) -> None:
        job_id = await run_full_history(store, clock, Succeeded())

        attempts = await store.insights.attempts(job_id)

        assert attempts is not None
        assert [each.number for each in attempts] == [1, 2, 3, 4, 5, 6]
        assert [each.fence for each in attempts] == [1, 2, 3, 4, 5, 6]
        ended = [each.outcome.value if each.outcome else None for each in attempts]
        assert ended == ["retry", "crash", "release", "snooze", "suspend", "succeed"]
        assert attempts[0].error is not None
        assert attempts[0].error.code == "Flaky"
        assert (attempts[0].worker, attempts[1].worker) == ("worker-1", "worker-2")
        assert [each.percent for each in attempts] == [30, 30, 30, 30, 30, 100]
        assert await store.insights.attempts(uuid7()) is None

    # -- immutability

    @pytest.mark.parametrize("end", ENDS)
    async def test_an_event_never_changes(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        before: list[Event] = []
        async for job_id in full_history(store, clock, ENDS[end]):
            log = await read_events(store, job_id)
            assert log[: len(before)] == before
            before = log

    async def test_a_cancel_request_changes_no_earlier_event(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 10, stage="voice"))
        before = await read_events(store, job.id)

        await store.apply([CancelRequest(job_id=job.id, by="ana")])
        assert (await read_events(store, job.id))[: len(before)] == before
        before = await read_events(store, job.id)

        await settle_one(store, job, Aborted(reason="as requested"))
        assert (await read_events(store, job.id))[: len(before)] == before

    async def test_a_retry_of_the_finished_job_changes_none_of_its_events(
        self, store: Store
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, Failed(failure=make_failure(terminal=True)))
        before = await read_events(store, job.id)

        await enqueue_one(store, retry_of=job.id)

        assert await read_events(store, job.id) == before

    # -- pages

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
    async def test_pages_of_any_size_return_the_same_events(self, store: Store, limit: int) -> None:
        job_id = await run_long_log(store, attempts=5, notes=12)
        whole = await read_events(store, job_id)
        assert len(whole) == 1 + 5 * (2 + 12 + 1) + 3

        events: list[Event] = []
        while True:
            page = await store.events(job_id, len(events), limit)
            assert page is not None
            assert 0 < len(page.events) <= limit
            events += page.events
            if page.ended:
                break

        assert events == whole

    async def test_a_page_can_start_after_any_event(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await run_full_history(store, clock, Succeeded())
        whole = await read_events(store, job_id)

        for after in range(len(whole) + 1):
            assert await read_events(store, job_id, after) == whole[after:]
            page = await store.events(job_id, after, 2)
            assert page is not None
            assert list(page.events) == whole[after : after + 2]
            assert page.ended == (after + 2 >= len(whole))

    async def test_a_log_of_thousands_of_events_is_read_completely(self, store: Store) -> None:
        job_id = await run_long_log(store, attempts=2, notes=1250)
        row = await get_one(store, job_id)

        log = await read_events(store, job_id)

        assert [event.seq for event in log] == list(range(1, row.seq + 1))

    async def test_a_log_ends_only_with_its_job(self, store: Store) -> None:
        job = await start_one(store)

        page = await store.events(job.id, after=job.seq)

        assert page is not None
        assert (list(page.events), page.ended) == ([], False)

    async def test_no_event_follows_the_final_one(self, store: Store) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded())

        page = await store.events(job.id, after=4)

        assert page is not None
        assert (list(page.events), page.ended) == ([], True)

    async def test_an_unknown_job_has_no_log(self, store: Store) -> None:
        assert await store.events(uuid7()) is None

    # -- pruned logs

    async def test_a_reader_behind_a_pruned_log_gets_a_resync(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await run_full_history(store, clock, ENDS["failure"])
        before = await read_events(store, job_id)
        clock.advance(2 * DAY)
        pruned = await store.prune(Retention(log=DAY), limit=10)
        assert (pruned.jobs, pruned.logs) == (0, 1)

        row = await get_one(store, job_id)
        log = await read_events(store, job_id)

        assert log[0].type is EventType.RESYNC
        assert log[0].data["state"] == State.FAILED
        assert log[-1] == before[-1]
        assert fold(log) == expected_fold(row)
        assert await read_events(store, job_id, limit=1) == log

    @pytest.mark.parametrize("end", ENDS)
    async def test_after_a_resync_the_events_follow_without_a_gap(
        self, store: Store, clock: VirtualClock, end: str
    ) -> None:
        job_id = await run_full_history(store, clock, ENDS[end])
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)
        row = await get_one(store, job_id)

        for after in range(row.seq + 1):
            log = await read_events(store, job_id, after)
            numbers = [event.seq for event in log]
            assert numbers == list(range(row.seq - len(log) + 1, row.seq + 1))
            assert not log or log[0].seq == after + 1 or log[0].type is EventType.RESYNC

    async def test_a_reader_ahead_of_a_pruned_log_gets_no_resync(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job_id = await run_full_history(store, clock, Succeeded())
        row = await get_one(store, job_id)
        clock.advance(2 * DAY)
        await store.prune(Retention(log=DAY), limit=10)

        page = await store.events(job_id, after=row.seq)

        assert page is not None
        assert (list(page.events), page.ended) == ([], True)

    async def test_texts_in_any_script_are_stored_unchanged(self, store: Store) -> None:
        job = await start_one(store)
        stage = "日本語 \N{GRINNING FACE} \"quoted\" \n'line' \\"

        await append_records(
            store, job, Record(n=1, type=EventType.STEP_PROGRESS, percent=1, stage=stage)
        )

        [event] = await read_events(store, job.id, after=job.seq)
        assert event.data["stage"] == stage
        assert (await get_one(store, job.id)).stage == stage
