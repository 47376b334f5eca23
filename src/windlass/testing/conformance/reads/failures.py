"""Failures: failed jobs newest first, without payloads and results."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND
from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.job.failure import FailedJob
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.history_helpers import BROKEN, finished
from windlass.testing.factories import claim_all, enqueue_one, make_failure, make_job, settle_one


async def failed(store: Store, since: int = 0, limit: int = 100, **whose: Any) -> list[UUID]:
    return [job.id for job in (await store.insights.failures(since, limit, **whose)).jobs]


class TestFailures:
    async def test_only_failed_jobs_are_returned_newest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        late = await enqueue_one(store, queue="late")
        ids = []
        for _ in range(3):
            ids.append((await finished(store, BROKEN)).id)
            clock.advance(1)
        await finished(store, Succeeded())
        await store.apply([CancelRequest(job_id=(await enqueue_one(store)).id)])
        [row] = await claim_all(store, "late")
        await settle_one(store, row, BROKEN)

        assert await failed(store) == [late.id, ids[2], ids[1], ids[0]]

    async def test_since_filters_by_end_and_is_inclusive(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await finished(store, BROKEN)
        clock.advance(10)
        second = await finished(store, BROKEN)

        assert await failed(store, since=clock.now()) == [second.id]
        assert await failed(store, since=clock.now() + 1) == []
        assert len(await failed(store, since=clock.now() - 10 * SECOND)) == 2

    async def test_a_failure_includes_the_encoded_error_body(
        self, store: Store, clock: VirtualClock
    ) -> None:
        failure = make_failure("disk", terminal=True, step="copy", body=b"\x00\xff")
        job = await finished(store, Failed(failure=failure), queue="media", task="film")

        [found] = (await store.insights.failures(0, 10)).jobs

        assert found == FailedJob(
            id=job.id, task="film", queue="media", ended_at=clock.now(), error=job.error
        )
        assert found.error is not None
        assert found.error.body == b"\x00\xff"

    async def test_failures_are_capped_at_the_limit_and_marked(self, store: Store) -> None:
        """Also if many jobs end at the same instant."""
        await store.enqueue([make_job() for _ in range(5)])
        for row in await claim_all(store):
            await settle_one(store, row, BROKEN)

        some = await store.insights.failures(0, 3)
        assert (len(some.jobs), some.capped) == (3, True)
        every = await store.insights.failures(0, 5)
        assert (len(every.jobs), every.capped) == (5, False)

    async def test_failures_can_be_filtered_by_owner(self, store: Store) -> None:
        anns = await finished(store, BROKEN, owner="ann", team="red")
        bobs = await finished(store, BROKEN, owner="bob", team="red")

        assert await failed(store, owner="ann") == [anns.id]
        assert await failed(store, team="red") == [bobs.id, anns.id]
        assert await failed(store, owner="ann", team="blue") == []
        found = await store.insights.failures(0, 1, owner="ann")
        assert (list(found.jobs), found.capped) == ([], True)

    async def test_deleted_jobs_are_not_returned(self, store: Store) -> None:
        job = await finished(store, BROKEN)
        await store.delete([job.id])

        assert await failed(store) == []
