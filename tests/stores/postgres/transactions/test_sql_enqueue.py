"""The SQL function `windlass_enqueue` stores the same rows as the enqueue of the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.stores.postgres.outages.test_notify import WAIT_TIMEOUT, messages, wait_for_listener
from tests.stores.postgres.server import CLEAN, execute

from windlass.core.clock import SECOND
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import DEFAULT_POLICY, NewJob
from windlass.core.job.retry_policy import Policy, delays, exponential, fixed
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.stores.postgres import PostgresStore, rows
from windlass.stores.postgres import notify as pg_notify
from windlass.stores.postgres.writes import enqueue_jobs
from windlass.stores.sql.job_columns import JOB_COLUMNS, column_list
from windlass.testing.clock import VirtualClock

START = VirtualClock().now()
COLUMNS = column_list(JOB_COLUMNS)
IDS = [uuid4() for _ in range(12)]
POLICIES = [
    DEFAULT_POLICY,
    Policy(backoff=fixed(2.5), max_retries=0, crash_cap=1, timeout=0.5),
    Policy(backoff=delays([60, 300.5], jitter=0.1), timeout=3600),
    Policy(backoff=exponential(1, 5, "none")),
]
DERIVED_TABLES = ("queued", "waiting", "unique_key", "ended", "unsuccessful", "edge")


def _none_or(*values: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), st.sampled_from(values))


new_jobs = st.builds(
    NewJob,
    id=st.sampled_from(IDS),
    task=st.sampled_from(["film", "Büro"]),
    queue=st.sampled_from(["default", "media"]),
    payload=st.binary(max_size=8),
    priority=st.sampled_from([0, 0, 5, -(2**31) + 1]),
    delay=st.sampled_from([0.0, 0.0, 2.0000005, 90.25]),
    run_at=_none_or(START - SECOND, START + 5 * SECOND),
    hold=st.booleans(),
    expires_in=_none_or(0.25, 1e6),
    expires_at=_none_or(START + 7 * SECOND),
    policy=st.sampled_from(POLICIES),
    lease=_none_or(0.5, 90.0),
    owner=st.sampled_from(["", "", "ada"]),
    team=_none_or("a\\b"),
    tags=st.sampled_from([(), ('a "b"', "c,{}")]),
    headers=st.sampled_from([{}, {"correlation-id": "é\n"}]),
    request_id=_none_or("r1", "r2"),
    digest=_none_or(b"\0" * 16, b"\xff" * 16),
    unique_key=_none_or("k1", "k2"),
    debounce=st.booleans(),
)


@asynccontextmanager
async def _empty(url: str, clock: VirtualClock) -> AsyncIterator[tuple[PostgresStore, Any]]:
    connection = await asyncpg.connect(url)
    await connection.execute(f"{CLEAN};ALTER SEQUENCE windlass_serial RESTART")
    try:
        async with PostgresStore(url, clock=clock) as store:
            yield store, connection
    finally:
        await connection.close()


async def _enqueue(
    store: PostgresStore,
    connection: Any,
    jobs: Sequence[NewJob],
    *,
    by_function: bool,
    atomic: bool = False,
) -> list[EnqueueResult]:
    if not by_function:
        return await store.enqueue(jobs, atomic=atomic)
    async with connection.transaction():
        return await store.within(connection).aenqueue(jobs, atomic=atomic)


async def _comparable(connection: Any, answers: Sequence[EnqueueResult]) -> list[tuple[Any, ...]]:
    """Return the results of one call. A job displaced in the same call is given by its id.

    With the function, rows are read after the call; the store returns each row as it was stored.
    """
    canceled = await connection.fetch("SELECT id FROM windlass_job WHERE state = 'canceled'")
    canceled_ids = {row["id"] for row in canceled}

    def results(row: JobRow) -> Any:
        return row.id if row.id in canceled_ids else replace(row, serial=0, position=None)

    return [
        (
            answer.status,
            None if answer.row is None else results(answer.row),
            None if answer.error is None else (type(answer.error), str(answer.error)),
        )
        for answer in answers
    ]


async def _tables(connection: Any) -> dict[str, Any]:
    """Return all stored rows. Serials are replaced by ranks: some serials remain unused."""
    jobs = await connection.fetch(f"SELECT {COLUMNS} FROM windlass_job ORDER BY n")
    rank = {row["n"]: index for index, row in enumerate(jobs)}
    found: dict[str, Any] = {
        "job": [
            replace(
                rows.job_row(row),
                serial=rank[row["n"]],
                position=rank.get(row["position"]),
            )
            for row in jobs
        ]
    }
    for table in DERIVED_TABLES:
        stored = await connection.fetch(f"SELECT * FROM windlass_{table}")
        records = [dict(row) for row in stored]
        for record in records:
            for name in ("n", "position", "child", "parent"):
                if name in record:
                    record[name] = rank[record[name]]
            if "jobs" in record:
                record["jobs"] = [rank[n] for n in record["jobs"]]
        found[table] = sorted(map(repr, records))
    sums = "SELECT minute, queue, task, outcome, sum(count), sum(wait), sum(run)"
    counted = await connection.fetch(f"{sums} FROM windlass_rollup GROUP BY 1, 2, 3, 4")
    found["rollup"] = sorted(map(tuple, counted))
    return found


async def run_history(
    url: str,
    first: Sequence[NewJob],
    second: Sequence[NewJob],
    *,
    by_function: bool,
    atomic: bool = False,
) -> tuple[Any, ...]:
    """Enqueue some jobs, claim one, advance the clock, and enqueue more."""
    clock = VirtualClock()
    async with _empty(url, clock) as (store, connection):
        answers = await _enqueue(store, connection, first, by_function=by_function, atomic=atomic)
        results = await _comparable(connection, answers)
        claim = Claim(token=IDS[0], worker="w", queues=[("default", 1)])
        taken = [row.id for row in await store.claim(claim)]
        clock.advance(3)
        answers = await _enqueue(store, connection, second, by_function=by_function, atomic=atomic)
        results += await _comparable(connection, answers)
        return results, taken, await _tables(connection)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(first=st.lists(new_jobs, max_size=5), second=st.lists(new_jobs, max_size=5))
def test_the_sql_function_stores_the_same_rows_as_the_store(
    postgres_database: str, first: list[NewJob], second: list[NewJob]
) -> None:
    by_store = asyncio.run(run_history(postgres_database, first, second, by_function=False))
    by_function = asyncio.run(run_history(postgres_database, first, second, by_function=True))

    assert by_function == by_store


async def enqueue_json(url: str, jobs: Any) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch("SELECT * FROM windlass_enqueue($1)", json.dumps(jobs)))
    finally:
        await connection.close()


async def test_plain_json_becomes_a_job_that_a_worker_can_run(postgres_url: str) -> None:
    [answer] = await enqueue_json(postgres_url, [{"task": "mail.send", "payload": {"to": "ada"}}])

    async with PostgresStore(postgres_url) as store:
        [row] = await store.claim(Claim(token=uuid4(), worker="w", queues=[("default", 9)]))
    assert answer["status"] == "created"
    assert answer["id"] == answer["job_id"] == row.id
    assert json.loads(row.payload) == {"to": "ada"}
    assert row.id.version == 7


async def test_one_job_needs_no_array_and_times_may_be_timestamps(postgres_url: str) -> None:
    [answer] = await enqueue_json(
        postgres_url, {"task": "t", "run_at": "2100-01-01T00:00:00+01:00"}
    )

    async with PostgresStore(postgres_url) as store:
        [row] = await store.get([answer["job_id"]])
    assert row is not None
    assert (row.state, row.due_at) == (State.CREATED, 4_102_441_200 * SECOND)
    assert row.payload == b"{}"  # no arguments


async def test_the_same_request_with_other_json_is_a_conflict(postgres_url: str) -> None:
    requested = {"task": "t", "request_id": "r", "payload": {"a": 1, "b": [True]}}
    same = {"payload": {"b": [True], "a": 1}, "request_id": "r", "task": "t"}
    [first, second, third] = await enqueue_json(
        postgres_url, [requested, same, {**requested, "payload": 2}]
    )

    assert (second["status"], second["job_id"]) == ("duplicate", first["id"])
    assert third["status"] == "conflict"
    assert "different arguments" in third["error"]


INVALID_ITEMS = [
    ({"task": "t", "depends_on": ["abc"]}, 'depends_on has "abc"; it takes the ids of jobs'),
    ({"task": "t", "depends_on": [None]}, "depends_on has null; it takes the ids of jobs"),
    ({"task": "t", "depends_on": [f"{'a' * 8}{'-aaaa' * 3}-{a * 12}" for a in "aA"]}, "twice"),
    ({"task": "t", "delya": 1}, "unknown field delya"),
    ({"queue": "q"}, "task and queue must have at least one character"),
    ({"task": "t" * 129}, "task has 129 characters, the limit is 128"),
    ({"task": 5}, "task is 5; it must be string"),
    ({"task": "t", "id": "no"}, "invalid input syntax for type uuid"),
    ({"task": "t", "delay": -1}, "delay is -1 s; it must be between 0 and 10 years"),
    ({"task": "t", "lease": 0}, "lease is 0 s; it must be positive"),
    ({"task": "t", "expires_in": 10**12}, "expires_in is 1000000000000 s"),
    ({"task": "t", "priority": 2**31}, "out of range for type integer"),
    ({"task": "t", "priority": -(2**31)}, "priority must be between"),
    ({"task": "t", "run_at": "2100-01-01"}, "must be a timestamp with a time zone"),
    ({"task": "t", "run_at": "soon +01"}, "must be a timestamp with a time zone"),
    ({"task": "t", "run_at": "2100-13-01T00:00Z"}, "out of range"),
    ({"task": "t", "run_at": -1}, "run_at is -1; it must be between 1970 and 9999"),
    ({"task": "t", "tags": ["a", ""]}, "tags must be at most 32 texts"),
    ({"task": "t", "tags": [1]}, "tags must be at most 32 texts"),
    ({"task": "t", "headers": {"a": 1}}, "headers must be texts"),
    ({"task": "t", "payload_base64": "%"}, "base64"),
    ({"task": "t", "payload": "x" * 2**20}, "the limit is 1,048,576"),
    ({"task": "t", "payload": 1, "payload_base64": "MQ=="}, "both given"),
    ({"task": "t", "retry_of": str(UUID(int=7))}, "retry a job with job.retry()"),
    ({"task": "t", "policy": {"retries": 3}}, "policy accepts only backoff"),
    ({"task": "t", "policy": {"max_retries": -1}}, "max_retries cannot be negative"),
    ({"task": "t", "policy": {"timeout": 0}}, "timeout must be positive"),
    ({"task": "t", "policy": {"backoff": {"kind": "never"}}}, "its kind must be"),
    ({"task": "t", "policy": {"backoff": 7}}, "its kind must be"),
    ({"task": "t", "policy": {"backoff": {"kind": "delays", "delays": []}}}, "its kind must be"),
    ({"task": "t", "policy": {"backoff": {"kind": "fixed", "seconds": "NaN"}}}, "a delay of the"),
    ("t", "it must be an object"),
]


@pytest.mark.parametrize(("item", "reason"), INVALID_ITEMS, ids=lambda value: str(value)[:40])
async def test_an_invalid_item_is_named_with_the_reason_and_nothing_is_stored(
    postgres_url: str, item: Any, reason: str
) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError) as raised:
        await enqueue_json(postgres_url, [{"task": "valid"}, item])

    assert str(raised.value).startswith("job 2 of windlass_enqueue: ")
    assert reason in str(raised.value)
    assert await execute(postgres_url, "SELECT FROM windlass_job") == []


async def test_a_rolled_back_flow_leaves_nothing(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with PostgresStore(postgres_url) as store:
        transaction = connection.transaction()
        await transaction.start()
        call = 'SELECT * FROM windlass_enqueue(\'{"task": "t", "unique_key": "k"}\')'
        await connection.fetch(call)
        await transaction.rollback()
        assert await store.insights.stats() == {}

        [answer] = await connection.fetch(call)
        assert answer["status"] == "created"
    await connection.close()


@pytest.mark.parametrize("notify", ["on", "off"])
async def test_a_commit_wakes_waiting_workers_unless_notify_is_off(
    postgres_url: str, notify: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with PostgresStore(postgres_url) as store, messages(postgres_url) as received:
        await wait_for_listener(store)
        await store.claim(Claim(token=uuid4(), worker="w", queues=[("default", 1)]))
        waiting = asyncio.create_task(store.wait(["default"], 4 * WAIT_TIMEOUT))
        async with connection.transaction():
            await connection.execute(f"SET LOCAL windlass.notify = {notify}")
            await connection.execute('SELECT windlass_enqueue(\'{"task": "t"}\')')
            await asyncio.sleep(0.05)
            assert not waiting.done()
        await execute(postgres_url, f"SELECT pg_notify('{pg_notify.CHANNEL}', 'last')")
        results = []
        async with asyncio.timeout(WAIT_TIMEOUT):
            while (message := await received.get()) != "last":
                results.append(message)
        assert any(message.startswith("sql 1 ") for message in results) is (notify == "on")
        if notify == "on":
            assert await asyncio.wait_for(waiting, WAIT_TIMEOUT)
        else:
            await asyncio.wait([waiting], timeout=0.3)
            assert not waiting.done()
            waiting.cancel()
    await connection.close()


async def test_both_ways_to_enqueue_use_the_same_lock(postgres_url: str) -> None:
    for parts in (("request", "", "é"), ("unique", "o", "t", "k\n")):
        connection = await asyncpg.connect(postgres_url)
        number = await connection.fetchval("SELECT windlass_lock_number(VARIADIC $1)", list(parts))
        await connection.close()
        assert number == enqueue_jobs.lock_number(*parts)


async def test_concurrent_enqueues_with_one_key_make_one_job_by_either_way(
    postgres_url: str,
) -> None:
    requested = [NewJob(id=UUID(int=n + 1), task="t", unique_key=f"k{n % 3}") for n in range(30)]
    reverse = list(reversed(requested))

    async def by_function() -> None:
        async with PostgresStore(postgres_url) as store:
            connection = await asyncpg.connect(postgres_url)
            for chunk in (requested[:10], reverse[:10], reverse[10:]):
                await _enqueue(store, connection, chunk, by_function=True)
            await connection.close()

    async def by_store() -> None:
        async with PostgresStore(postgres_url) as store:
            for chunk in (reverse[5:25], requested[:20], requested[20:]):
                await store.enqueue(chunk)

    await asyncio.gather(*(enqueue() for _ in range(3) for enqueue in (by_function, by_store)))

    found = await execute(postgres_url, "SELECT unique_key FROM windlass_job ORDER BY 1")
    assert [row[0] for row in found] == ["k0", "k1", "k2"]


@pytest.mark.parametrize("key", ["request_id", "unique_key"])
async def test_a_snapshot_older_than_a_conflicting_job_fails_and_never_hangs(
    postgres_url: str, key: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    requested = {"task": "t", key: "k"}
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetch("SELECT FROM windlass_job")
    await enqueue_json(postgres_url, requested)

    with pytest.raises(asyncpg.SerializationError):
        await connection.fetch("SELECT windlass_enqueue($1)", json.dumps(requested), timeout=20)

    await transaction.rollback()
    [again] = await connection.fetch("SELECT * FROM windlass_enqueue($1)", json.dumps(requested))
    assert again["status"] == "duplicate"
    await connection.close()
