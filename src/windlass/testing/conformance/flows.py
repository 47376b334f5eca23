"""Flows are listed from the newest on, at a cost that does not grow with them."""

from __future__ import annotations

from uuid import UUID

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.dependency import Edges, FlowStats
from windlass.core.job.state import State
from windlass.store import FLOW_RANGE, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.find import enqueue_many
from windlass.testing.conformance.job_histories import BROKEN
from windlass.testing.factories import claim_all, claim_one, enqueue_one, settle_one, start_one


async def ids(store: Store, owner: str | None = None, team: str | None = None) -> list[UUID]:
    page = await store.newest_flows(50, owner=owner, team=team)
    return [one.flow_id for one in page.flows]


class TestFlows:
    async def test_of_many_edges_the_first_are_told(self, store: Store) -> None:
        parents = await enqueue_many(store, 4)
        child = await enqueue_one(store, depends_on=tuple(parents))
        children = await enqueue_many(store, 4, depends_on=(child.id,))

        for most in (0, 1, 3, 4, 9, None):
            [edges] = await store.edges([child.id], most)
            assert edges == Edges(tuple(parents[:most]), tuple(children[:most])), most

    async def test_without_flows_there_is_one_empty_page(self, store: Store) -> None:
        await enqueue_one(store)
        page = await store.newest_flows(50)
        assert (list(page.flows), page.cursor) == ([], None)

    async def test_the_newest_comes_first_whichever_had_a_job_last(self, store: Store) -> None:
        old, new = uuid7(), uuid7()
        for flow_id in (new, old, old):
            await enqueue_one(store, flow_id=flow_id)
        assert await ids(store) == [new, old]

    async def test_each_is_told_as_by_itself(self, store: Store, clock: VirtualClock) -> None:
        done, open_ = uuid7(), uuid7()
        await enqueue_many(store, 3, flow_id=done)
        rows = await claim_all(store)
        clock.advance(5)
        for row in rows[:2]:
            await settle_one(store, row, Succeeded())
        await settle_one(store, rows[2], BROKEN)
        await enqueue_many(store, 2, flow_id=open_)
        await settle_one(store, await claim_one(store), Succeeded())

        page = await store.newest_flows(50)

        assert list(page.flows) == await store.flows([open_, done])
        [running, failed] = page.flows
        assert (running.state, running.percent, running.ended_at) == (State.RUNNING, 50, None)
        assert (failed.state, failed.jobs, failed.ended_at) == (State.FAILED, 3, clock.now())

    async def test_a_retry_stands_for_the_job_that_it_retries(self, store: Store) -> None:
        flow_id = uuid7()
        job = await start_one(store, flow_id=flow_id)
        await settle_one(store, job, BROKEN)
        await enqueue_one(store, retry_of=job.id, flow_id=flow_id)
        [flow] = (await store.newest_flows(50)).flows
        assert (flow.state, flow.jobs) == (State.QUEUED, 1)

    async def test_pages_hold_each_flow_once(self, store: Store) -> None:
        flows = [uuid7() for _ in range(5)]
        for flow_id in flows:
            await enqueue_many(store, 2, flow_id=flow_id)
        seen: list[FlowStats] = []
        page = await store.newest_flows(2)
        while page.cursor is not None:
            assert len(page.flows) <= 2
            seen += page.flows
            await enqueue_one(store, flow_id=uuid7())  # what comes shifts nothing
            page = await store.newest_flows(2, page.cursor)
        seen += page.flows
        assert [one.flow_id for one in seen] == flows[::-1]

    async def test_an_owner_sees_their_own_jobs_of_flows_and_no_others(self, store: Store) -> None:
        anns, both = uuid7(), uuid7()
        await enqueue_many(store, 2, flow_id=anns, owner="ann", team="red")
        await enqueue_many(store, 3, flow_id=both, owner="bob", team="red")
        await enqueue_one(store, flow_id=both, owner="ann", team="blue")

        assert await ids(store, owner="ann") == [both, anns]
        assert await ids(store, owner="ann", team="red") == [anns]
        assert await ids(store, team="red") == [both, anns]
        assert await ids(store, owner="cat") == []
        assert [one.jobs for one in (await store.newest_flows(50, owner="ann")).flows] == [1, 2]
        for owner, team, jobs in (
            (None, None, [4, 2]),
            ("ann", None, [1, 2]),
            (None, "red", [3, 2]),
            ("ann", "red", [None, 2]),
            ("cat", None, [None, None]),
        ):
            found = await store.flows([both, anns], owner, team)
            assert [one and one.jobs for one in found] == jobs, (owner, team)
        hidden = await store.newest_flows(1, owner="bob", team="blue")
        assert list(hidden.flows) == []
        assert hidden.cursor is not None

    async def test_of_a_large_flow_the_newest_jobs_are_counted_and_it_is_said(
        self, store: Store
    ) -> None:
        flow_id = uuid7()
        await enqueue_many(store, FLOW_RANGE, flow_id=flow_id, hold=True)
        [flow] = (await store.newest_flows(50)).flows
        assert (flow.counts, flow.capped) == ({State.CREATED: FLOW_RANGE}, False)

        await enqueue_one(store, flow_id=flow_id)
        [flow] = (await store.newest_flows(50)).flows
        assert flow.counts == {State.CREATED: FLOW_RANGE - 1, State.QUEUED: 1}
        assert flow.capped
