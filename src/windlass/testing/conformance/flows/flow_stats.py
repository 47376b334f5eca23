"""Flow statistics: counts of the jobs of a flow, at a cost independent of its size."""

from __future__ import annotations

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import FLOW_RANGE, Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.flows.dependencies import child_of, store_all
from windlass.testing.conformance.flows.flow_list import listed_ids
from windlass.testing.conformance.history_helpers import BROKEN
from windlass.testing.conformance.reads.find import enqueue_many
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    make_job,
    settle_one,
    start_one,
)


class TestFlowStats:
    async def test_flow_stats_count_all_jobs_of_a_flow(
        self, store: Store, clock: VirtualClock
    ) -> None:
        flow_id = uuid7()
        created_at = clock.now()
        top = make_job(flow_id=flow_id)
        left, right = child_of(top, flow_id=flow_id), child_of(top, flow_id=flow_id)
        await store_all(store, top, left, right, make_job(queue="other"))
        clock.advance(5)
        [flow, nothing] = await store.insights.flows([flow_id, uuid7()])
        assert nothing is None
        assert flow is not None
        assert (flow.jobs, flow.percent, flow.created_at) == (3, 0, created_at)
        assert (flow.state, flow.ended_at) == (State.QUEUED, None)

        await settle_one(store, await claim_one(store), Succeeded())
        [flow] = await store.insights.flows([flow_id])
        assert flow is not None
        assert (flow.state, flow.percent) == (State.RUNNING, 33)

        rows = await claim_all(store)
        assert {row.flow_id for row in rows} == {flow_id}
        await settle_one(store, rows[0], Succeeded())
        await settle_one(store, rows[1], BROKEN)
        [flow] = await store.insights.flows([flow_id])
        assert flow is not None
        assert (flow.state, flow.ended_at) == (State.FAILED, clock.now())
        assert flow.counts == {State.SUCCEEDED: 2, State.FAILED: 1}

    async def test_a_retry_replaces_its_original_in_the_flow_stats(self, store: Store) -> None:
        flow_id = uuid7()
        job = await start_one(store, flow_id=flow_id)
        await settle_one(store, job, BROKEN)
        await enqueue_one(store, retry_of=job.id, flow_id=flow_id)
        await settle_one(store, await claim_one(store), Succeeded())
        [flow] = await store.insights.flows([flow_id])
        assert flow is not None
        assert (flow.state, flow.jobs, flow.percent) == (State.SUCCEEDED, 1, 100)

    async def test_flow_stats_of_an_owner_count_only_own_jobs(self, store: Store) -> None:
        anns, both = uuid7(), uuid7()
        await enqueue_many(store, 2, flow_id=anns, owner="ann", team="red")
        await enqueue_many(store, 3, flow_id=both, owner="bob", team="red")
        await enqueue_one(store, flow_id=both, owner="ann", team="blue")

        assert await listed_ids(store, owner="ann") == [both, anns]
        assert await listed_ids(store, owner="ann", team="red") == [anns]
        assert await listed_ids(store, team="red") == [both, anns]
        assert await listed_ids(store, owner="cat") == []
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
