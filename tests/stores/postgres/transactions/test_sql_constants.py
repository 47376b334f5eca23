"""SQL functions repeat size limits and the default policy of the core.

`tests/stores/sql/test_sql_constants.py` compares all numbers and names in SQL files with the core.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from tests.stores.postgres.server import execute
from tests.stores.postgres.transactions.test_sql_enqueue import enqueue_json

from windlass.core.admission.limit import MAX_LIMIT, MIN_PERIOD
from windlass.core.clock import MAX_INSTANT
from windlass.core.job.new_job import DEFAULT_POLICY
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.size_limits import (
    MAX_BLOB,
    MAX_HEADERS,
    MAX_KEY,
    MAX_NAME,
    MAX_PARENTS,
    MAX_PRIORITY,
    MAX_TAGS,
)
from windlass.stores.postgres import PostgresStore

LONGEST_BACKOFF = {"backoff": {"kind": "fixed", "seconds": MAX_DELAY}}
QUOTES = len('""')
LARGEST: list[tuple[str, Any, Any]] = [  # field, largest valid value, one more
    *(
        (field, "x" * limit, "x" * (limit + 1))
        for field, limit in (
            ("task", MAX_NAME),
            ("queue", MAX_NAME),
            ("owner", MAX_KEY),
            ("team", MAX_KEY),
            ("request_id", MAX_KEY),
            ("unique_key", MAX_KEY),
            ("limit_key", MAX_KEY),
        )
    ),
    ("payload", "x" * (MAX_BLOB - QUOTES), "x" * (MAX_BLOB - QUOTES + 1)),
    ("headers", {"k": "x" * (MAX_HEADERS - 1)}, {"k": "x" * MAX_HEADERS}),
    ("tags", [str(n) for n in range(MAX_TAGS)], [str(n) for n in range(MAX_TAGS + 1)]),
    ("tags", ["x" * MAX_KEY], ["x" * (MAX_KEY + 1)]),
    ("priority", MAX_PRIORITY, MAX_PRIORITY + 1),
    ("priority", -MAX_PRIORITY, -MAX_PRIORITY - 1),
    ("delay", MAX_DELAY, MAX_DELAY + 1),
    ("lease", MAX_DELAY, MAX_DELAY + 1),
    ("expires_in", MAX_DELAY, MAX_DELAY + 1),
    ("run_at", MAX_INSTANT, MAX_INSTANT + 1),
    ("expires_at", MAX_INSTANT, MAX_INSTANT + 1),
    ("policy", {"timeout": MAX_DELAY}, {"timeout": MAX_DELAY + 1}),
    ("policy", LONGEST_BACKOFF, {"backoff": {"kind": "fixed", "seconds": MAX_DELAY + 1}}),
]


@pytest.mark.parametrize(
    ("field", "largest", "too_large"),
    LARGEST,
    ids=[f"{n}-{row[0]}" for n, row in enumerate(LARGEST)],
)
async def test_sql_has_the_size_limits_of_the_core(
    postgres_url: str, field: str, largest: Any, too_large: Any
) -> None:
    [result] = await enqueue_json(postgres_url, [{"task": "t", field: largest}])
    assert result["status"] == "created"
    with pytest.raises(asyncpg.PostgresError):
        await enqueue_json(postgres_url, [{"task": "t", field: too_large}])


async def test_sql_has_the_limit_of_parents_of_the_core(postgres_url: str) -> None:
    check = "SELECT windlass_check_parents($1::jsonb, $2)"
    parents = [str(uuid4()) for _ in range(MAX_PARENTS + 1)]
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(check, json.dumps(parents[1:]), uuid4())
        with pytest.raises(asyncpg.InvalidParameterValueError, match=f"limit is {MAX_PARENTS:,}"):
            await connection.execute(check, json.dumps(parents), uuid4())
    finally:
        await connection.close()


async def test_sql_has_the_default_policy_of_the_core(postgres_url: str) -> None:
    items = [
        {"task": "t"},
        {"task": "t", "policy": {}},
        {"task": "t", "policy": {"max_retries": 17}},
    ]
    ids = [result["id"] for result in await enqueue_json(postgres_url, items)]
    async with PostgresStore(postgres_url) as store:
        plain, empty, changed = [row.policy for row in await store.get(ids) if row is not None]
    assert (plain, empty) == (DEFAULT_POLICY, DEFAULT_POLICY)
    assert changed == replace(DEFAULT_POLICY, max_retries=17)
    stored = await execute(postgres_url, "SELECT policy FROM windlass_job WHERE policy IS NOT NULL")
    assert len(stored) == 1  # the default is stored as NULL


@pytest.mark.parametrize(
    ("valid", "invalid"),
    [
        ({"concurrency": MAX_LIMIT}, {"concurrency": MAX_LIMIT + 1}),
        ({"starts": MAX_LIMIT, "period": 1}, {"starts": MAX_LIMIT + 1, "period": 1}),
        ({"starts": 1, "period": MAX_DELAY}, {"starts": 1, "period": MAX_DELAY + 1}),
        ({"starts": 1, "period": MIN_PERIOD}, {"starts": 1, "period": MIN_PERIOD / 2}),
    ],
    ids=["concurrency", "starts", "longest period", "shortest period"],
)
async def test_sql_has_the_ranges_of_limits_of_the_core(
    postgres_url: str, valid: dict[str, Any], invalid: dict[str, Any]
) -> None:
    declare = "SELECT windlass_declare_limit($1, $2)"
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(declare, "queue:q", _record(valid))
        with pytest.raises(asyncpg.InvalidParameterValueError, match="out of range"):
            await connection.execute(declare, "queue:other", _record(invalid))
        name = "queue:" + "q" * (MAX_KEY - len("queue:"))
        await connection.execute(declare, name, _record(valid))
        with pytest.raises(asyncpg.InvalidParameterValueError, match="not a valid declared limit"):
            await connection.execute(declare, name + "q", _record(valid))
    finally:
        await connection.close()


def _record(given: dict[str, Any]) -> bytes:
    """Return the record of a declared limit, as Python writes it."""
    fields = {"concurrency": None, "starts": None, "period": None, **given}
    record = {**fields, "declared": fields, "override": None}
    return json.dumps(record, separators=(",", ":")).encode()
