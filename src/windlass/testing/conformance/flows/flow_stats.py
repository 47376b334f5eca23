"""Flow statistics: newest flow first, at a cost independent of their size."""

from __future__ import annotations

from uuid import UUID

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.dependency import Edges
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.state import State
from windlass.store import FLOW_RANGE, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.job_histories import BROKEN
from windlass.testing.conformance.reads.find import enqueue_many
from windlass.testing.factories import claim_all, claim_one, enqueue_one, settle_one, start_one


async def ids(store: Store, owner: str | None = None, team: str | None = None) -> list[UUID]:
    page = await store.insights.newest_flows(50, owner=owner, team=team)
    return [stats.flow_id for stats in page.flows]


class TestFlowStats:
    async def test_edges_can_be_limited_to_the_first(self, store: Store) -> None:
        parents = await enqueue_many(store, 4)
        child = await enqueue_one(store, depends_on=tuple(parents))
        children = await enqueue_many(store, 4, depends_on=(child.id,))

        for most in (0, 1, 3, 4, 9, None):
            [edges] = await store.edges([child.id], most)
            assert edges == Edges(tuple(parents[:most]), tuple(children[:most])), most

    async def test_without_flows_there_is_one_empty_page(self, store: Store) -> None:
        await enqueue_one(store)
        page = await store.insights.newest_flows(50)
        assert (list(page.flows), page.cursor) == ([], None)

    async def test_flows_are_ordered_by_their_creation_newest_first(self, store: Store) -> None:
        old, new = uuid7(), uuid7()
        for flow_id in (new, old, old):
            await enqueue_one(store, flow_id=flow_id)
        assert await ids(store) == [new, old]

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

    async def test_a_retry_replaces_its_original_in_flow_stats(self, store: Store) -> None:
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

    async def test_flow_stats_of_an_owner_count_only_own_jobs(self, store: Store) -> None:
        anns, both = uuid7(), uuid7()
        await enqueue_many(store, 2, flow_id=anns, owner="ann", team="red")
        await enqueue_many(store, 3, flow_id=both, owner="bob", team="red")
        await enqueue_one(store, flow_id=both, owner="ann", team="blue")

        assert await ids(store, owner="ann") == [both, anns]
        assert await ids(store, owner="ann", team="red") == [anns]
        assert await ids(store, team="red") == [both, anns]
        assert await ids(store, owner="cat") == []
        assert [
            stats.jobs for stats in (await store.insights.newest_flows(50, owner="ann")).flows
        ] == [1, 2]
        for owner, team, jobs in (
            (None, None, [4, 2]),
            ("ann", None, [1, 2]),
            (None, "red", [3, 2]),
            ("ann", "red", [None, 2]),
            ("cat", None, [None, None]),
        ):
            found = await store.insights.flows([both, anns], owner, team)
            assert [stats and stats.jobs for stats in found] == jobs, (owner, team)
        hidden = await store.insights.newest_flows(1, owner="bob", team="blue")
        assert list(hidden.flows) == []
        assert hidden.cursor is not None

    async def test_stats_of_a_large_flow_are_capped_and_marked(self, store: Store) -> None:
        flow_id = uuid7()
        await enqueue_many(store, FLOW_RANGE, flow_id=flow_id, hold=True)
        [flow] = (await store.insights.newest_flows(50)).flows
        assert (flow.counts, flow.capped) == ({State.CREATED: FLOW_RANGE}, False)

        await enqueue_one(store, flow_id=flow_id)
        [flow] = (await store.insights.newest_flows(50)).flows
        assert flow.counts == {State.CREATED: FLOW_RANGE - 1, State.QUEUED: 1}
        assert flow.capped
