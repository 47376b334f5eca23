"""Every statement has one plan, whatever the table sizes and statistics."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.server import CLEAN, execute

from windlass.core.decisions.outcome import Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL, PostgresQueries
from windlass.testing.factories import claim_all, make_job, settle_one

STATEMENTS = sorted(item.name for item in fields(PostgresQueries))
# Statements that scan a whole table on purpose: lease rows of running jobs, and records.
FULL_SCANS = {
    "due": {"windlass_lease"},
    "stats": {"windlass_lease"},
    "delete_expired_records": {"windlass_record"},
}
CALLED = re.compile(r"\bwindlass_\w+(?=\()")
SITUATIONS = ["never analyzed", "analyzed when empty", "grown since", "analyzed when full"]


def nodes(plan: dict[str, Any], *, limited: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each node of a plan, and whether a LIMIT is above it."""
    limited = limited or plan["Node Type"] == "Limit"
    yield plan, limited
    for child in plan.get("Plans", []):
        yield from nodes(child, limited=limited)


def unbounded(plan: dict[str, Any]) -> set[str]:
    """Return the tables that a plan scans completely."""
    found = set()
    for node, limited in nodes(plan):
        kind, table = node["Node Type"], node.get("Relation Name")
        if table is None or not (kind.endswith("Scan") or kind == "Index Only Scan"):
            continue
        by_key = kind.startswith("Index") and (limited or "Index Cond" in node)
        if not (by_key or kind == "Tid Scan"):
            found.add(table)
    return found


async def plan_of(connection: Any, name: str) -> dict[str, Any]:
    sql = getattr(SQL, name)
    count = max((int(n) for n in re.findall(r"\$(\d+)", sql)), default=0)
    await connection.execute(f"PREPARE query AS {sql}")
    values = f"({', '.join(['NULL'] * count)})" if count else ""
    explained = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE query{values}")
    await connection.execute("DEALLOCATE query")
    plan: dict[str, Any] = json.loads(explained)[0]["Plan"]
    return plan


async def fill(url: str) -> None:
    """Store thousands of jobs: queued, delayed, expiring, keyed, running, succeeded, retried."""
    async with PostgresStore(url) as store:
        for _ in range(5):
            await store.enqueue([make_job() for _ in range(1000)])
        await store.enqueue([make_job(delay=60.0, expires_in=90.0) for _ in range(500)])
        keyed = [make_job(request_id=str(uuid7()), unique_key=str(uuid7())) for _ in range(500)]
        await store.enqueue(keyed)
        for row in (await claim_all(store, limit=500))[:20]:
            await settle_one(store, row, Succeeded())
        await store.enqueue([NewJob(id=uuid7(), task="t", retry_of=row.id) for row in keyed[:5]])


@pytest.fixture(scope="module", params=SITUATIONS)
def situation(request: pytest.FixtureRequest, postgres_database: str) -> str:
    url = postgres_database
    tables = [name.split()[-1] for name in CLEAN.split(";")]
    asyncio.run(execute(url, f"TRUNCATE {', '.join(tables)}"))
    if request.param in {"analyzed when empty", "grown since"}:
        asyncio.run(execute(url, "VACUUM ANALYZE"))
    if request.param in {"grown since", "analyzed when full"}:
        asyncio.run(fill(url))
    if request.param == "analyzed when full":
        asyncio.run(execute(url, "VACUUM ANALYZE"))
    return url


async def test_no_statement_scans_a_whole_table(situation: str) -> None:
    connection: Any = await asyncpg.connect(
        situation, server_settings={**SETTINGS, "plan_cache_mode": "force_generic_plan"}
    )
    full_scans = {}
    for name in STATEMENTS:
        read = unbounded(await plan_of(connection, name)) - FULL_SCANS.get(name, set())
        if read:
            full_scans[name] = read
    await connection.close()

    assert not full_scans


async def test_a_claim_reads_the_queue_by_one_range_scan_up_to_the_limit(situation: str) -> None:
    connection: Any = await asyncpg.connect(
        situation, server_settings={**SETTINGS, "plan_cache_mode": "force_generic_plan"}
    )
    plan = await plan_of(connection, "claim")
    await connection.close()

    scans = [
        (node["Node Type"], node.get("Index Name"), limited)
        for node, limited in nodes(plan)
        if node.get("Relation Name") == "windlass_queued" and node["Node Type"].endswith("Scan")
    ]
    assert sorted(scans, key=str) == [
        ("Index Scan", "windlass_queued_order", True),
        ("Tid Scan", None, False),
    ]
    assert not [node for node, limited in nodes(plan) if node["Node Type"] == "Sort" and limited]
    rate_indexes = [
        node.get("Index Name") for node, _ in nodes(plan) if node.get("Alias") == "windlass_gate"
    ]
    assert rate_indexes == ["windlass_gate_rate_limited"]


async def test_called_functions_set_their_own_planner_settings(
    postgres_database: str,
) -> None:
    """Behind a pooler, sessions lack these settings, and a function keeps its first plan."""
    called = {name for item in STATEMENTS for name in CALLED.findall(getattr(SQL, item))}
    found = await execute(
        postgres_database,
        "SELECT proname FROM pg_proc JOIN pg_language AS language ON language.oid = prolang "
        "WHERE lanname = 'plpgsql' AND (proconfig IS NULL OR NOT proconfig "
        "@> ARRAY['enable_seqscan=off', 'plan_cache_mode=force_generic_plan'])",
    )
    assert "windlass_bounds" in called
    # These functions read no tables.
    assert called & {row[0] for row in found} == {
        "windlass_declare_limit",
        "windlass_raise_claim_conflict",
        "windlass_error_text",
    }
