"""Concurrent retries of one lineage by independent handles."""

from __future__ import annotations

import asyncio

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Failed
from windlass.stores.postgres import PostgresStore
from windlass.testing.conformance.history_helpers import finished
from windlass.testing.factories import claim_one, enqueue_one, make_failure, make_job, settle_one

ROUNDS = 10


async def test_a_lineage_has_one_active_retry_whichever_of_its_jobs_is_retried(
    postgres_url: str,
) -> None:
    async with PostgresStore(postgres_url) as store, store.twin() as other:
        for _ in range(ROUNDS):
            first = await finished(store)
            again = await enqueue_one(store, retry_of=first.id)
            broken = Failed(failure=make_failure(terminal=True))
            await settle_one(store, await claim_one(store), broken)
            answers = await asyncio.gather(
                store.enqueue([make_job(retry_of=first.id)]),
                other.enqueue([make_job(retry_of=again.id)]),
            )
            made = [answer for [answer] in answers if answer.status is EnqueueStatus.CREATED]
            assert len(made) == 1
            await settle_one(store, await claim_one(store), broken)
