"""The cost of counts does not depend on the number of jobs."""

from __future__ import annotations

import pytest

from windlass.core.query.job_query import Count, JobQuery
from windlass.stores.postgres import PostgresStore, insights, reads
from windlass.testing.conformance.reads.find import enqueue_many


async def test_a_count_reads_no_further_than_its_range(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SEARCH_RANGE", 10)
    monkeypatch.setattr(insights, "COUNT_RANGE", 30)
    async with PostgresStore(postgres_url) as store:
        await enqueue_many(store, 15, task="old")
        await enqueue_many(store, 14, task="new")
        assert await store.insights.count(JobQuery(tasks=frozenset({"old"}))) == Count(
            15, capped=False
        )
        await enqueue_many(store, 11, task="new")
        assert await store.insights.count(JobQuery(tasks=frozenset({"old"}))) == Count(
            5, capped=True
        )
        assert await store.insights.count(JobQuery(tasks=frozenset({"none"}))) == Count(
            0, capped=True
        )
