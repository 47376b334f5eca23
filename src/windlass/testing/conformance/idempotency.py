"""Idempotency: a repeated write returns the first result and writes nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.outcome import Released, Succeeded, settle
from windlass.core.decisions.transition import ApplyResult, Status
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import DAY, AttemptRecords, Pruned, Retention, Store
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.history_helpers import finished
from windlass.testing.conformance.write_scenarios import WRITES
from windlass.testing.factories import (
    claim_one,
    get_one,
    log_record,
    make_job,
    no_jitter,
    read_events,
    settle_one,
    start_one,
)


def plain(answer: Any) -> Any:
    """Return a comparable result: errors by code, lazy rows as plain rows."""
    match answer:
        case EnqueueResult():
            return answer.status, answer.row, answer.error and answer.error.code
        case ApplyResult():
            return answer.status, answer.state, answer.error and answer.error.code
        case Sequence():
            return [plain(item) for item in answer]
    return answer


async def read_all(store: Store) -> dict[str, Any]:
    """Read all data of a store."""
    rows = (await store.find(JobQuery(limit=1000))).rows
    ids = [row.id for row in rows]
    return {
        "jobs": rows,
        "events": [await read_events(store, job_id) for job_id in ids],
        "attempts": [await store.insights.attempts(job_id) for job_id in ids],
        "steps": await store.checkpoints(ids),
        "stats": await store.insights.stats(),
        "rollups": await store.insights.rollups(
            START - 100 * 60_000_000, START + 1000 * 60_000_000
        ),
        "records": [await store.list_records(kind) for kind in ("plan", "paused")],
    }


class TestIdempotency:
    @pytest.mark.parametrize("name", WRITES)
    async def test_a_repeated_call_returns_the_same_result_and_writes_once(
        self, store: Store, clock: VirtualClock, name: str
    ) -> None:
        call = await WRITES[name](store, clock)

        first = plain(await call(store))
        once = await read_all(store)
        again = plain(await call(store))

        assert again == first
        assert await read_all(store) == once

    @pytest.mark.parametrize("name", WRITES)
    async def test_a_repeat_through_another_handle_has_the_same_effect(
        self, store: Store, clock: VirtualClock, name: str
    ) -> None:
        """As after a lost connection: the client repeats the call over a new one."""
        call = await WRITES[name](store, clock)

        first = plain(await call(store))
        once = await read_all(store)
        async with store.twin() as other:
            again = plain(await call(other))

        assert again == first
        assert await read_all(store) == once

    async def test_repeated_items_in_one_call_write_once(self, store: Store) -> None:
        job = await start_one(store)
        new = make_job(queue="other")

        enqueued = await store.enqueue([new, new])
        assert [answer.accepted for answer in enqueued] == [True, True]
        assert (await store.insights.stats())["other"].counts[State.QUEUED] == 1

        entry = AttemptRecords(job.lease, (log_record(1, "once"),))
        await store.record([entry, entry])
        transition = settle(job, Succeeded(), random=no_jitter, children=[make_job(queue="child")])
        answers = await store.apply([transition, transition])

        assert [answer.status for answer in answers] == [Status.APPLIED, Status.APPLIED]
        assert [event.seq for event in await read_events(store, job.id)] == [1, 2, 3, 4, 5]
        assert (await store.insights.stats())["child"].counts[State.QUEUED] == 1

    async def test_a_settle_repeated_during_the_next_attempt_changes_nothing(
        self, store: Store
    ) -> None:
        first = await start_one(store)
        transition = settle(first, Released(), random=no_jitter)
        await store.apply([transition])
        second = await claim_one(store)

        [answer] = await store.apply([transition])

        assert answer.status is Status.APPLIED
        assert await get_one(store, first.id) == second

    async def test_a_repeated_delete_finds_nothing(self, store: Store) -> None:
        """The delete also removes the data that would identify a repeat."""
        job = await finished(store)
        await store.delete([job.id])
        once = await read_all(store)

        [answer] = await store.delete([job.id])

        assert answer.status is Status.MISSING
        assert await read_all(store) == once

    async def test_a_repeated_prune_finds_nothing(self, store: Store, clock: VirtualClock) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded(), records=[log_record(1, "said")])
        await finished(store)
        clock.advance(2 * DAY)
        retention = Retention(failed=DAY, log=DAY)
        assert await store.prune(retention, limit=10) == Pruned(jobs=1, logs=1)
        once = await read_all(store)

        assert await store.prune(retention, limit=10) == Pruned()

        assert await read_all(store) == once
