"""List of flows: newest flow first, in pages, at a cost independent of their size."""

from __future__ import annotations

from uuid import UUID

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN
from windlass.testing.conformance.reads.find import enqueue_many
from windlass.testing.factories import claim_all, claim_one, enqueue_one, settle_one, start_one


async def listed_ids(store: Store, owner: str | None = None, team: str | None = None) -> list[UUID]:
    page = await store.insights.newest_flows(50, owner=owner, team=team)
    return [stats.flow_id for stats in page.flows]


class TestFlowList:
    async def test_without_flows_there_is_one_empty_page(self, store: Store) -> None:
        await enqueue_one(store)
        page = await store.insights.newest_flows(50)
        assert (list(page.flows), page.cursor) == ([], None)

    async def test_flows_are_ordered_by_their_creation_newest_first(self, store: Store) -> None:
        old, new = uuid7(), uuid7()
        for flow_id in (new, old, old):
            await enqueue_one(store, flow_id=flow_id)
        assert await listed_ids(store) == [new, old]

    async def test_listed_flow_stats_equal_single_flow_stats(
        self, store: Store, clock: VirtualClock
    ) -> None:
        done, open_ = uuid7(), uuid7()
        await enqueue_many(store, 3, flow_id=done)
        rows = await claim_all(store)
        clock.advance(5)
        for row in rows[:2]:
            await settle_one(store, row, Succeeded())
        await settle_one(store, rows[2], BROKEN)
        await enqueue_many(store, 2, flow_id=open_)
        await settle_one(store, await claim_one(store), Succeeded())

        page = await store.insights.newest_flows(50)

        assert list(page.flows) == await store.insights.flows([open_, done])
        [running, failed] = page.flows
        assert (running.state, running.percent, running.ended_at) == (State.RUNNING, 50, None)
        assert (failed.state, failed.jobs, failed.ended_at) == (State.FAILED, 3, clock.now())

    async def test_a_retry_replaces_its_original_in_listed_flow_stats(self, store: Store) -> None:
        flow_id = uuid7()
        job = await start_one(store, flow_id=flow_id)
        await settle_one(store, job, BROKEN)
        await enqueue_one(store, retry_of=job.id, flow_id=flow_id)
        [flow] = (await store.insights.newest_flows(50)).flows
        assert (flow.state, flow.jobs) == (State.QUEUED, 1)

    async def test_pages_hold_each_flow_once(self, store: Store) -> None:
        flows = [uuid7() for _ in range(5)]
        for flow_id in flows:
            await enqueue_many(store, 2, flow_id=flow_id)
        listed: list[FlowStats] = []
        page = await store.insights.newest_flows(2)
        while page.cursor is not None:
            assert len(page.flows) <= 2
            listed += page.flows
            await enqueue_one(store, flow_id=uuid7())  # a new flow shifts no page
            page = await store.insights.newest_flows(2, page.cursor)
        listed += page.flows
        assert [stats.flow_id for stats in listed] == flows[::-1]
