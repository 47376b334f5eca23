"""The SQL of the how-to page runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.stores.postgres.server import execute

from windlass.core.decisions.outcome import Succeeded
from windlass.stores.postgres import PostgresStore
from windlass.testing.factories import enqueue_one, settle_one, start_one

PAGE = Path(__file__).parents[4] / "docs/how-to/postgresql.md"
QUERIES = re.findall(r"```sql\n(.*?);\n```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.partition("\n")[0])
async def test_a_query_of_the_page_runs(postgres_url: str, query: str) -> None:
    async with PostgresStore(postgres_url) as store:
        await settle_one(store, await start_one(store), Succeeded())
        await start_one(store)
        await enqueue_one(store)
        assert len(await execute(postgres_url, query)) >= 1
