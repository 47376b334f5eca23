"""The compact forms of claim and settle: the results equal the stored rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from windlass.core.decisions.outcome import Released, Succeeded, settle, succeed
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy
from windlass.stores.postgres import PostgresStore
from windlass.stores.sql.job_columns import OPTIONAL_COLUMNS
from windlass.testing.factories import make_job, no_jitter

SPECIAL: list[dict[str, Any]] = [
    {"expires_in": 60.0},
    {"policy": Policy(max_retries=9)},
    {"lease": 7.0},
    {"owner": "me"},
    {"team": "ours"},
    {"tags": ("a", "b")},
    {"headers": {"correlation-id": "c"}},
    {"request_id": "once"},
    {"digest": b"0123456789abcdef"},
    {"unique_key": "one"},
    {"flow_id": UUID(int=7)},
    {"limit_key": "key"},
]


def claim(queue: str = "default", most: int = 100) -> Claim:
    return Claim(token=uuid7(), worker="w", queues=[(queue, most)])


def test_every_optional_column_is_tested() -> None:
    tested = {name for special in SPECIAL for name in special}
    # The test of a claimed retry has two jobs.
    assert {column.request_field for column in OPTIONAL_COLUMNS} - tested == {"retry_of"}


@pytest.mark.parametrize("special", [{}, {"priority": 5}, {"queue": "other"}, *SPECIAL], ids=str)
async def test_a_claim_returns_the_stored_row(postgres_url: str, special: dict[str, Any]) -> None:
    new = make_job(**special)
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([new])
        [row] = await store.claim(claim(new.queue))
        assert [row] == await store.get([new.id])


async def test_a_claim_of_a_retry_returns_the_stored_row(postgres_url: str) -> None:
    first, again = make_job(), make_job()
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([first])
        [row] = await store.claim(claim())
        await store.apply([succeed(row, Succeeded())])
        await store.enqueue([replace(again, retry_of=first.id)])
        [claimed] = await store.claim(claim())
        assert claimed.retry_of == first.id
        assert [claimed] == await store.get([again.id])


async def test_a_second_claim_of_a_job_returns_the_stored_row(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job()])
        [first] = await store.claim(claim())
        await store.apply([settle(first, Released(), random=no_jitter)])
        [second] = await store.claim(claim())
        assert second.fence == 2
        assert [second] == await store.get([second.id])


async def test_a_repeated_claim_returns_the_same_rows(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job() for _ in range(3)])
        request = claim()
        assert await store.claim(request) == await store.claim(request)


@pytest.mark.parametrize(
    "results",
    [[b"1", b"1", b"1"], [None, None, None], [None, b"1", b"2"], [b"1", None, b"1"]],
    ids=["all alike", "none", "none first", "none between"],
)
async def test_each_job_is_settled_with_its_own_result(
    postgres_url: str, results: list[bytes | None]
) -> None:
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job() for _ in results])
        held = await store.claim(claim())
        ends = zip(held, results, strict=True)
        await store.apply([succeed(row, Succeeded(result=result)) for row, result in ends])
        stored = await store.get([row.id for row in held])
        assert [row and row.result for row in stored] == results


async def test_jobs_of_many_claims_and_attempts_are_settled_together(postgres_url: str) -> None:
    """More leases than one byte can number, one of them lost."""
    new: list[NewJob] = [make_job() for _ in range(300)]
    async with PostgresStore(postgres_url) as store:
        await store.enqueue(new)
        held = [row for _ in new for row in await store.claim(claim(most=1))]
        await store.apply([settle(row, Released(), random=no_jitter) for row in held[:20]])
        again = [row for _ in range(20) for row in await store.claim(claim(most=1))]
        transitions = [succeed(row, Succeeded()) for row in [*again[:-1], *held[19:]]]

        answers = await store.apply(transitions)

        stale = [index for index, answer in enumerate(answers) if not answer.applied]
        assert stale == [19]  # the first attempt of a released job, which was claimed again
        running = [row for row in await store.get([job.id for job in new]) if row and not row.final]
        assert running == again[-1:]
