"""Every write may be repeated: the answer is the first one's, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.outcome import Released, Succeeded, settle
from windlass.core.decisions.transition import Answer, Status
from windlass.core.job.state import State
from windlass.core.query.job_query import Query
from windlass.store import DAY, Pruned, Retention, Saying, Store
from windlass.testing.clock import START, VirtualClock
from windlass.testing.conformance.job_histories import finished
from windlass.testing.conformance.writes import WRITES
from windlass.testing.factories import (
    claim_one,
    even,
    get_one,
    make_job,
    note,
    read_events,
    settle_one,
    start_one,
)


def plain(answer: Any) -> Any:
    """An answer without what does not compare: errors by their code, rows made on demand."""
    match answer:
        case Enqueued():
            return answer.status, answer.row, answer.error and answer.error.code
        case Answer():
            return answer.status, answer.state, answer.error and answer.error.code
        case Sequence():
            return [plain(item) for item in answer]
    return answer


async def everything(store: Store) -> dict[str, Any]:
    """All that can be read of a store."""
    rows = (await store.find(Query(limit=1000))).rows
    ids = [row.id for row in rows]
    return {
        "jobs": rows,
        "events": [await read_events(store, job_id) for job_id in ids],
        "attempts": [await store.attempts(job_id) for job_id in ids],
        "steps": await store.checkpoints(ids),
        "stats": await store.stats(),
        "rollups": await store.rollups(START - 100 * 60_000_000, START + 1000 * 60_000_000),
        "records": [await store.list_records(kind) for kind in ("plan", "paused")],
    }


class TestRepetition:
    @pytest.mark.parametrize("name", WRITES)
    async def test_called_twice_is_answered_twice_and_done_once(
        self, store: Store, clock: VirtualClock, name: str
    ) -> None:
        call = await WRITES[name](store, clock)

        first = plain(await call(store))
        once = await everything(store)
        again = plain(await call(store))

        assert again == first
        assert await everything(store) == once

    @pytest.mark.parametrize("name", WRITES)
    async def test_a_repeat_through_another_handle_is_the_same(
        self, store: Store, clock: VirtualClock, name: str
    ) -> None:
        """As when a client lost its connection, and asks again over a new one."""
        call = await WRITES[name](store, clock)

        first = plain(await call(store))
        once = await everything(store)
        async with store.twin() as other:
            again = plain(await call(other))

        assert again == first
        assert await everything(store) == once

    async def test_repeated_in_one_call_it_is_done_once_too(self, store: Store) -> None:
        job = await start_one(store)
        new = make_job(queue="other")

        enqueued = await store.enqueue([new, new])
        assert [answer.accepted for answer in enqueued] == [True, True]
        assert (await store.stats())["other"].counts[State.QUEUED] == 1

        saying = Saying(job.lease, (note(1, "once"),))
        await store.record([saying, saying])
        wish = settle(job, Succeeded(), random=even, children=[make_job(queue="child")])
        answers = await store.apply([wish, wish])

        assert [answer.status for answer in answers] == [Status.APPLIED, Status.APPLIED]
        assert [event.seq for event in await read_events(store, job.id)] == [1, 2, 3, 4, 5]
        assert (await store.stats())["child"].counts[State.QUEUED] == 1

    async def test_a_settle_repeated_while_the_next_attempt_runs_does_not_touch_it(
        self, store: Store
    ) -> None:
        first = await start_one(store)
        wish = settle(first, Released(), random=even)
        await store.apply([wish])
        second = await claim_one(store)

        [answer] = await store.apply([wish])

        assert answer.status is Status.APPLIED
        assert await get_one(store, first.id) == second

    async def test_to_delete_again_is_to_find_nothing(self, store: Store) -> None:
        """With the job goes all that could remember the first call."""
        job = await finished(store)
        await store.delete([job.id])
        once = await everything(store)

        [answer] = await store.delete([job.id])

        assert answer.status is Status.MISSING
        assert await everything(store) == once

    async def test_to_prune_again_is_to_find_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        job = await start_one(store)
        await settle_one(store, job, Succeeded(), records=[note(1, "said")])
        await finished(store)
        clock.advance(2 * DAY)
        retention = Retention(failed=DAY, log=DAY)
        assert await store.prune(retention, limit=10) == Pruned(jobs=1, logs=1)
        once = await everything(store)

        assert await store.prune(retention, limit=10) == Pruned()

        assert await everything(store) == once
