"""Progress: an integer percentage that never falls and ends at 100."""

from __future__ import annotations

import pytest

from windlass.core.decisions.outcome import Failed, Released, Snoozed, Succeeded
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.event import EventType
from windlass.core.job.event_log import fold
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
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


class TestProgress:
    async def test_a_new_job_is_at_0_percent(self, store: Store) -> None:
        job = await start_one(store)

        assert (job.percent, job.stage, job.phase) == (0, None, None)

    async def test_a_report_moves_the_percent_the_stage_and_the_phase(self, store: Store) -> None:
        job = await start_one(store)

        await append_records(store, job, progress_record(1, 35, stage="voice", phase="tts"))

        now = await get_one(store, job.id)
        assert (now.percent, now.stage, now.phase) == (35, "voice", "tts")

    async def test_a_lower_percent_is_ignored(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 60))

        await append_records(store, job, progress_record(2, 40))

        assert (await get_one(store, job.id)).percent == 60

    async def test_a_lower_percent_in_the_same_call_is_ignored(self, store: Store) -> None:
        job = await start_one(store)

        await append_records(
            store, job, progress_record(1, 60), progress_record(2, 40), progress_record(3, 50)
        )

        assert (await get_one(store, job.id)).percent == 60

    async def test_a_lower_percent_still_updates_the_stage(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 60, stage="voice", phase="tts"))

        await append_records(store, job, progress_record(2, 40, stage="images", phase="visuals"))

        now = await get_one(store, job.id)
        assert (now.percent, now.stage, now.phase) == (60, "images", "visuals")

    async def test_a_report_without_a_percent_keeps_the_percent(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 60))

        await append_records(store, job, progress_record(2, None, stage="images"))

        now = await get_one(store, job.id)
        assert (now.percent, now.stage) == (60, "images")

    async def test_a_report_without_a_stage_keeps_the_stage(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 10, stage="voice", phase="tts"))

        await append_records(store, job, progress_record(2, 20))

        now = await get_one(store, job.id)
        assert (now.percent, now.stage, now.phase) == (20, "voice", "tts")

    async def test_a_record_that_is_not_progress_keeps_the_percent(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 60))

        await append_records(store, job, log_record(2, "on the way", percent=90))

        assert (await get_one(store, job.id)).percent == 60

    @pytest.mark.parametrize(
        ("reported", "kept"),
        [(-5, 0), (33.9, 33), (100, 100), (250, 100), (float("nan"), 0), (float("inf"), 100)],
    )
    async def test_a_percent_is_clamped_to_integers_from_0_to_100(
        self, store: Store, reported: float, kept: int
    ) -> None:
        job = await start_one(store)

        await append_records(store, job, progress_record(1, reported))

        assert (await get_one(store, job.id)).percent == kept

    async def test_events_contain_the_stored_percent_not_the_reported_one(
        self, store: Store
    ) -> None:
        job = await start_one(store)

        await append_records(
            store, job, progress_record(1, 60), progress_record(2, 40), progress_record(3, 300)
        )

        percents = [
            event.data["progressPct"]
            for event in await read_events(store, job.id)
            if event.type is EventType.STEP_PROGRESS
        ]
        assert percents == [60, 60, 100]

    async def test_the_percent_does_not_fall_across_a_retry(self, store: Store) -> None:
        first = await start_one(store)
        await append_records(store, first, progress_record(1, 60, stage="voice"))
        await settle_one(store, first, Failed(failure=make_failure(), delay=0))

        second = await claim_one(store)
        assert (second.attempt, second.percent, second.stage) == (2, 60, "voice")

        await append_records(store, second, progress_record(1, 10))
        assert (await get_one(store, first.id)).percent == 60
        await append_records(store, second, progress_record(2, 70))
        assert (await get_one(store, first.id)).percent == 70

    async def test_the_percent_does_not_fall_across_a_snooze_or_a_release(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 60))
        await settle_one(store, job, Snoozed(delay=5))
        assert (await get_one(store, job.id)).percent == 60

        clock.advance(5)
        await sweep_all(store)
        job = await claim_one(store)
        await settle_one(store, job, Released(), records=[progress_record(1, 20)])

        assert (await get_one(store, job.id)).percent == 60

    async def test_the_percent_does_not_fall_after_a_rescue(
        self, store: Store, clock: VirtualClock
    ) -> None:
        crashed = await start_one(store)
        await append_records(store, crashed, progress_record(1, 60))
        clock.advance(31)
        await sweep_all(store)

        alive = await claim_one(store, worker="worker-2")
        await append_records(store, alive, progress_record(1, 5))

        assert (await get_one(store, crashed.id)).percent == 60

    async def test_a_stale_worker_cannot_change_the_percent(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stale = await start_one(store)
        clock.advance(31)
        await sweep_all(store)
        holder = await claim_one(store, worker="worker-2")
        await append_records(store, holder, progress_record(1, 20))

        answer = await append_records(store, stale, progress_record(1, 90, stage="elsewhere"))

        assert answer.status is Status.STALE
        now = await get_one(store, stale.id)
        assert (now.percent, now.stage) == (20, None)

    async def test_a_settle_stores_the_last_report(self, store: Store) -> None:
        job = await start_one(store)

        last = [progress_record(1, 80, stage="render")]
        await settle_one(store, job, Failed(failure=make_failure()), records=last)

        now = await get_one(store, job.id)
        assert (now.percent, now.stage) == (80, "render")

    async def test_success_means_100(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 40))

        await settle_one(store, job, Succeeded())

        assert (await get_one(store, job.id)).percent == 100
        [*_, final] = await read_events(store, job.id)
        assert final.data["percent"] == 100

    async def test_a_failure_keeps_the_percent(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 40, stage="voice"))

        await settle_one(store, job, Failed(failure=make_failure(terminal=True)))

        now = await get_one(store, job.id)
        assert (now.state, now.percent, now.stage) == (State.FAILED, 40, "voice")

    async def test_a_cancel_that_wins_over_a_success_keeps_the_percent(self, store: Store) -> None:
        job = await start_one(store)
        await append_records(store, job, progress_record(1, 40))
        await store.apply([CancelRequest(job_id=job.id)])

        await settle_one(store, job, Succeeded())

        now = await get_one(store, job.id)
        assert (now.state, now.percent) == (State.CANCELED, 40)

    async def test_the_percent_never_falls_from_event_to_event(self, store: Store) -> None:
        job = await enqueue_one(store)
        for reports in ([30, 10], [5, 45], [44, 90, 2]):
            attempt = await claim_one(store)
            await append_records(
                store, attempt, *(progress_record(n, each) for n, each in enumerate(reports, 1))
            )
            await settle_one(store, attempt, Released())
        await store.apply([CancelRequest(job_id=job.id)])

        log = await read_events(store, job.id)
        percents = [fold(log[:length]).percent for length in range(1, len(log) + 1)]
        assert percents == sorted(percents)
        assert percents[-1] == 90
