"""Concurrent retries of one lineage by independent handles."""

from __future__ import annotations

import asyncio

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.outcome import Failed
from windlass.stores.postgres import PostgresStore
from windlass.testing.conformance.job_histories import finished
from windlass.testing.factories import claim_one, enqueue_one, make_failure, make_job, settle_one

ROUNDS = 10


async def test_a_lineage_has_one_active_retry_whichever_of_its_jobs_is_retried(
    postgres_url: str,
) -> None:
    async with PostgresStore(postgres_url) as one, one.twin() as other:
        for _ in range(ROUNDS):
            first = await finished(one)
            again = await enqueue_one(one, retry_of=first.id)
            broken = Failed(failure=make_failure(terminal=True))
            await settle_one(one, await claim_one(one), broken)
            answers = await asyncio.gather(
                one.enqueue([make_job(retry_of=first.id)]),
                other.enqueue([make_job(retry_of=again.id)]),
            )
            made = [answer for [answer] in answers if answer.status is EnqueueStatus.CREATED]
            assert len(made) == 1
            await settle_one(one, await claim_one(one), broken)
