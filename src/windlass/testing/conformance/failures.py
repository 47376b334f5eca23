"""What failed is told from the last on, without all that it carried."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.clock import SECOND
from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.decisions.transition import CancelRequest
from windlass.core.job.failure import FailedJob
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.job_histories import BROKEN, finished
from windlass.testing.factories import claim_all, enqueue_one, make_failure, make_job, settle_one


async def failed(store: Store, since: int = 0, limit: int = 100, **whose: Any) -> list[UUID]:
    return [job.id for job in (await store.failures(since, limit, **whose)).jobs]


class TestFailing:
    async def test_only_what_failed_is_told_the_last_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        late = await enqueue_one(store, queue="late")
        ids = []
        for _ in range(3):
            ids.append((await finished(store, BROKEN)).id)
            clock.advance(1)
        await finished(store, Succeeded())
        await store.cancel([CancelRequest(job_id=(await enqueue_one(store)).id)])
        [row] = await claim_all(store, "late")
        await settle_one(store, row, BROKEN)

        assert await failed(store) == [late.id, ids[2], ids[1], ids[0]]

    async def test_since_is_of_the_end_and_inclusive(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await finished(store, BROKEN)
        clock.advance(10)
        second = await finished(store, BROKEN)

        assert await failed(store, since=clock.now()) == [second.id]
        assert await failed(store, since=clock.now() + 1) == []
        assert len(await failed(store, since=clock.now() - 10 * SECOND)) == 2

    async def test_an_error_is_told_with_what_only_its_codec_reads(
        self, store: Store, clock: VirtualClock
    ) -> None:
        failure = make_failure("disk", terminal=True, step="copy", body=b"\x00\xff")
        job = await finished(store, Failed(failure=failure), queue="media", task="film")

        [told] = (await store.failures(0, 10)).jobs

        assert told == FailedJob(
            id=job.id, task="film", queue="media", ended_at=clock.now(), error=job.error
        )
        assert told.error is not None
        assert told.error.body == b"\x00\xff"

    async def test_at_most_so_many_are_looked_at_and_it_is_said(self, store: Store) -> None:
        """Also if many ended together."""
        await store.enqueue([make_job() for _ in range(5)])
        for row in await claim_all(store):
            await settle_one(store, row, BROKEN)

        some = await store.failures(0, 3)
        assert (len(some.jobs), some.capped) == (3, True)
        every = await store.failures(0, 5)
        assert (len(every.jobs), every.capped) == (5, False)

    async def test_of_those_that_are_looked_at_an_owner_sees_their_own(self, store: Store) -> None:
        anns = await finished(store, BROKEN, owner="ann", team="red")
        bobs = await finished(store, BROKEN, owner="bob", team="red")

        assert await failed(store, owner="ann") == [anns.id]
        assert await failed(store, team="red") == [bobs.id, anns.id]
        assert await failed(store, owner="ann", team="blue") == []
        seen = await store.failures(0, 1, owner="ann")
        assert (list(seen.jobs), seen.capped) == ([], True)

    async def test_what_was_deleted_is_not_told(self, store: Store) -> None:
        job = await finished(store, BROKEN)
        await store.delete([job.id])

        assert await failed(store) == []
