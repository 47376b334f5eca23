"""Computed insights beyond one page."""

from __future__ import annotations

import pytest

from windlass.core.decisions.outcome import Failed, Released
from windlass.core.ids import uuid7
from windlass.core.job.state import Trigger
from windlass.core.query.job_query import Count, JobQuery
from windlass.store import Retention, StoreInsights
from windlass.stores import computed_insights
from windlass.stores.computed_insights import ComputedInsights
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock
from windlass.testing.factories import (
    append_records,
    claim_one,
    enqueue_one,
    log_record,
    make_failure,
    make_job,
    settle_one,
    start_one,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def test_a_new_store_writes_only_gates_and_rollups() -> None:
    assert StoreInsights.__abstractmethods__ - ComputedInsights.__abstractmethods__ == {
        "attempts", "count", "failures", "flows", "newest_flows", "stats",
    }  # fmt: skip
    assert ComputedInsights.__abstractmethods__ == {"gates", "rollups"}


async def test_attempts_are_found_behind_thousands_of_events(store: MemoryStore) -> None:
    row = await start_one(store)
    for attempt in range(3):
        records = [log_record(n, f"line {n}") for n in range(1, 900)]
        await append_records(store, row, *records)
        outcome = Failed(failure=make_failure(f"Error{attempt}"), delay=0.0)
        await settle_one(store, row, outcome)
        row = await claim_one(store)
    found = await store.insights.attempts(row.id)
    assert found is not None
    assert [(one.number, one.outcome) for one in found] == [
        (1, Trigger.RETRY), (2, Trigger.RETRY), (3, Trigger.RETRY), (4, None),
    ]  # fmt: skip
    assert [one.error and one.error.code for one in found] == ["Error0", "Error1", "Error2", None]


async def test_the_attempts_of_a_pruned_log_are_those_of_the_row(
    store: MemoryStore, clock: VirtualClock
) -> None:
    row = await start_one(store)
    await settle_one(store, row, Released())
    row = await claim_one(store)
    await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
    clock.advance(100)
    await store.prune(Retention(log=1.0), 10)
    found = await store.insights.attempts(row.id)
    assert found is not None
    assert [one.number for one in found] == [2]


async def test_a_count_reads_all_pages(store: MemoryStore) -> None:
    await store.enqueue([make_job() for _ in range(2500)])
    assert await store.insights.count(JobQuery(limit=7)) == Count(2500, capped=False)
    assert (await ComputedInsights.stats(store.insights))["default"].counts == {"queued": 2500}


async def test_failures_outside_of_the_searched_range_are_marked(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed_insights, "COUNT_RANGE", 3)
    for count, capped in ((1, False), (2, False), (3, True), (4, True)):
        row = await start_one(store)
        await settle_one(store, row, Failed(failure=make_failure(terminal=True)))
        found = await store.insights.failures(0, 100)
        assert (len(found.jobs), found.capped) == (min(count, 3), capped)


async def test_flows_are_searched_in_the_newest_jobs(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed_insights, "COUNT_RANGE", 3)
    flows = [uuid7() for _ in range(4)]
    for flow_id in flows:
        await enqueue_one(store, flow_id=flow_id)
    page = await store.insights.newest_flows(10)
    assert [flow.flow_id for flow in page.flows] == flows[:0:-1]
    assert all(await store.insights.flows(flows)), "a known flow is always found"
